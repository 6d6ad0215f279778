package etcd

import (
	"github.com/holdfast-db/holdfast/internal/agent/tuning"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// measureTuning is what a leader measures of its data; nil of another member.
func measureTuning(s agentapi.Status) *tuning.Sample {
	own := readGroup(s)
	if !s.Serving || own.Group == nil || own.Group.Self == "" || own.Group.Leader != own.Group.Self || own.DataLimit <= 0 {
		return nil
	}
	return &tuning.Sample{
		Levels:   map[string]float64{agentapi.TuningDataSize: float64(own.DataInUse)},
		Settings: map[string]float64{"quota": float64(own.DataLimit)},
	}
}
