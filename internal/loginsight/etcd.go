package loginsight

import (
	"encoding/json"
	"strings"
	"time"
)

// etcdEntry is what is read of an entry of etcd's text log, which is JSON. Fields that
// name keys, values, users and addresses are not among them.
type etcdEntry struct {
	Level   string `json:"level"`
	Time    string `json:"ts"`
	Message string `json:"msg"`
	// Durations, as Go writes them.
	Took     string `json:"took"`
	Exceeded string `json:"exceeded-duration"`
	Drift    string `json:"clock-drift"`
	Spent    string `json:"time spent"`
}

func took(e *etcdEntry) string     { return e.Took }
func exceeded(e *etcdEntry) string { return e.Exceeded }
func drift(e *etcdEntry) string    { return e.Drift }
func spent(e *etcdEntry) string    { return e.Spent }

// etcdRule is one way in which etcd 3.5 to 3.7 reports a class.
type etcdRule struct {
	class string
	// message is the whole message; where part is set, both must be in it.
	message, part string
	capture       func(*etcdEntry) string

	found *Class
}

var etcdRules = []etcdRule{
	{class: "EtcdDataDiffers", message: "found different hash values from remote peer"},
	{class: "EtcdDataDiffers", message: "found hash mismatch"},
	{class: "EtcdDataDiffers", message: "failed compaction hash check"}, // 3.5
	{class: "EtcdDataDiffers", message: "Detected compaction hash mismatch"},
	{class: "EtcdDataDiffers", message: "Detected compaction hash mismatch but cannot identify the corrupted members, so intentionally set the memberID as 0"},
	{class: "EtcdDataDiffers", message: "same compact revision then hashes must match"},
	{class: "EtcdDataDiffers", message: "revision from follower must be less than or equal to leader's"},
	{class: "EtcdDataDiffers", message: "compact revision from follower must be less than or equal to leader's"},
	{class: "EtcdQuorumLost", message: " stepped down to follower since ", part: "quorum is not active"},
	{class: "EtcdLeaderLost", message: "raft.node: ", part: " lost leader "},
	{class: "EtcdLeaderElected", message: "raft.node: ", part: " elected leader "},
	{class: "EtcdLeaderElected", message: "raft.node: ", part: " changed leader from "},
	{class: "EtcdElection", message: " is starting a new election", part: " at term "},
	{class: "EtcdClockDrift", message: "prober found high clock drift", capture: drift},
	{class: "EtcdDiskSlow", message: "slow fdatasync", capture: took},
	{class: "EtcdHeartbeatLate", message: "leader failed to send out heartbeat on time; took too long, leader is overloaded likely from slow disk", capture: exceeded},
	{class: "EtcdReadIndexLate", message: "waiting for ReadIndex response took too long, retrying"},
	{class: "EtcdReadIndexLate", message: "timed out waiting for read index response (local node might have slow network)"},
	{class: "EtcdSlowApply", message: "apply request took too long", capture: took},
	{class: "EtcdApplyFailed", message: "failed to apply request", capture: took},
	{class: "EtcdPeerUnreachable", message: "prober detected unhealthy status"},
	{class: "EtcdPeerUnreachable", message: "peer became inactive (message send to peer failed)"},
	{class: "EtcdPeerUnreachable", message: "lost TCP streaming connection with remote peer"},
	{class: "EtcdPeerOverloaded", message: "dropped internal Raft message since sending buffer is full"},
	{class: "EtcdPeerOverloaded", message: "dropped internal Raft message since sending buffer is full (overloaded network)"},
	{class: "EtcdTLSRejected", message: "rejected connection"}, // 3.5.9
	{class: "EtcdTLSRejected", message: "rejected connection on client endpoint"},
	{class: "EtcdTLSRejected", message: "rejected connection on peer endpoint"},
	{class: "EtcdSlowRequest", message: "request stats", capture: spent},
	{class: "EtcdCompacted", message: "finished scheduled compaction", capture: took},
	{class: "EtcdDefragmented", message: "finished defragmenting directory", capture: took},
	{class: "EtcdStarted", message: "ready to serve client requests"},
	{class: "EtcdStopping", message: "received signal; shutting down"},
}

// etcdIndex has the rules by their whole message, and those that look for parts.
var etcdIndex, etcdParts = func() (map[string]*etcdRule, []*etcdRule) {
	index := map[string]*etcdRule{}
	var parts []*etcdRule
	for i := range etcdRules {
		r := &etcdRules[i]
		r.found = mustFind(etcdClasses, r.class)
		if r.part != "" {
			parts = append(parts, r)
			continue
		}
		index[r.message] = r
	}
	return index, parts
}()

// raftMessage is longer than any message of etcd's Raft library, which etcd writes with
// the name of the sender and a term.
const raftMessage = 200

// ParseEtcd reads an entry of etcd's text log. JSON escapes what a client chose, so no
// client can begin an entry.
func ParseEtcd(line string, now time.Time) (Event, Result) {
	if !strings.HasPrefix(line, "{") {
		return Event{}, Unknown
	}
	var e etcdEntry
	if json.Unmarshal([]byte(line), &e) != nil || e.Message == "" {
		return Event{}, Unknown
	}
	r := findEtcdRule(e.Message)
	if r == nil || e.Level == "debug" {
		return Event{}, Unknown
	}
	event := Event{Class: r.found, Time: readEtcdTime(e.Time, now)}
	if r.capture != nil {
		if d, err := time.ParseDuration(r.capture(&e)); err == nil {
			event.Value = RoundValue(float64(d) / float64(time.Millisecond))
		}
	}
	return event, Known
}

func findEtcdRule(message string) *etcdRule {
	if r := etcdIndex[message]; r != nil {
		return r
	}
	if len(message) > raftMessage || strings.HasPrefix(message, "trace[") {
		return nil
	}
	for _, r := range etcdParts {
		if strings.Contains(message, r.message) && strings.Contains(message, r.part) {
			return r
		}
	}
	return nil
}

// readEtcdTime reads a time as zap writes it, with a zone as 0200 or 02:00.
func readEtcdTime(text string, now time.Time) time.Time {
	for _, form := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999Z0700"} {
		if at, err := time.Parse(form, text); err == nil {
			return at.UTC()
		}
	}
	return now
}
