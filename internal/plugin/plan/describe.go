package plan

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/holdfast-db/holdfast/internal/forecast"
)

// DescribeStep is a step for people: what happens, and what clients notice.
func (c *Cluster) DescribeStep(s forecast.Step) (what, detail string) {
	var notices []string
	switch s.Kind {
	case forecast.MemberRestarts, forecast.MemberLeaves:
		if s.ReadersLeft < s.Readers {
			notices = append(notices, fmt.Sprintf("%s keeps %d of %d", c.reads, s.ReadersLeft, s.Readers))
		}
	case forecast.VolumeDeleted:
		notices = append(notices, s.Message)
	}
	if s.WritesPause && s.Kind != forecast.ClusterDeleted {
		notices = append(notices, c.describePause(s))
	}
	return describe(s), strings.Join(notices, ", ")
}

// describe is what happens in a step.
func describe(s forecast.Step) string {
	members := summarize(s.Members)
	switch s.Kind {
	case forecast.SettingsTaken:
		return "members take up " + strings.Join(s.Settings, ", ")
	case forecast.MembersJoin:
		return verb(s.Members, "", members, "joins", "join")
	case forecast.MemberLeaves:
		return members + " leaves"
	case forecast.MemberRestarts:
		return members + " restarts: " + s.Message
	case forecast.RestartInPlace:
		return members + " restarts its database in place: " + s.Message
	case forecast.Switchover:
		return fmt.Sprintf("%s takes over from %s", s.Members[len(s.Members)-1], s.Members[0])
	case forecast.GroupChange:
		return members + " " + s.Message
	case forecast.BackupMade:
		return summarize(s.Objects) + " is made first: " + s.Message
	case forecast.DataRestored:
		return "the first member's volume is restored: " + s.Message
	case forecast.ClusterDeleted:
		if len(s.Members) == 0 {
			return "the cluster's object is deleted"
		}
		return "the cluster's object is deleted, and " + members + " with it"
	}
	return describeObjects(s)
}

// describeObjects is what happens to volumes and other objects in a step.
func describeObjects(s forecast.Step) string {
	volumes, objects := summarize(s.Volumes), summarize(s.Objects)
	switch s.Kind {
	case forecast.VolumeCreated:
		return fmt.Sprintf("%s created with %s", verb(s.Volumes, "volume", volumes, "is", "are"), s.To)
	case forecast.VolumesGrow:
		return fmt.Sprintf("%s from %s to %s", verb(s.Volumes, "volume", volumes, "grows", "grow"), s.From, s.To)
	case forecast.VolumeKept:
		return verb(s.Volumes, "volume", volumes, "is", "are") + " kept"
	case forecast.VolumeDeleted:
		return verb(s.Volumes, "volume", volumes, "is", "are") + " deleted"
	case forecast.ObjectChanges:
		return verb(s.Objects, "", objects, "changes", "change")
	case forecast.ObjectDeleted:
		return verb(s.Objects, "", objects, "is", "are") + " deleted"
	}
	return string(s.Kind)
}

// verb is a subject with the form of a verb that fits how many there are.
func verb(of []string, noun, names, one, many string) string {
	switch {
	case noun != "" && len(of) > 1:
		names = noun + "s " + names
	case noun != "":
		names = noun + " " + names
	}
	if len(of) == 1 {
		return names + " " + one
	}
	return names + " " + many
}

// longestValue of a field that a plan shows in full.
const longestValue = 60

// DescribeValues are the values of a field before and after.
func DescribeValues(c forecast.Change) string {
	return describeValue(c.From) + " → " + describeValue(c.To)
}

func describeValue(value any) string {
	switch value := value.(type) {
	case nil:
		return "–"
	case string:
		return shorten(value)
	}
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return shorten(string(data))
}

func shorten(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > longestValue {
		return string(runes[:longestValue]) + "…"
	}
	return text
}
