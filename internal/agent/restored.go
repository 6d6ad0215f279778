package agent

import (
	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/atomicfile"
)

// RestoredFile stands in a data directory that was restored from a backup.
const RestoredFile = ".holdfast-restored.json"

// Restored says for which cluster a data directory was restored. It comes into
// its place together with the data, and is in every copy of it: only the UID
// shows whether it speaks of this cluster.
type Restored struct {
	ClusterUID string `json:"clusterUID"`
	// Asked is what the cluster asked for, as the restore's pod writes it down.
	Asked  string                 `json:"asked,omitempty"`
	Result v1alpha1.RestoreResult `json:"result"`
}

// ReadRestored reads what a file says; nothing where there is none.
func ReadRestored(path string) (Restored, error) {
	var r Restored
	if _, err := atomicfile.ReadJSON(path, &r); err != nil {
		return Restored{}, err
	}
	return r, nil
}
