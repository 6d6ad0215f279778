package importer

import (
	"errors"
	"testing"
	"time"
)

func TestMembersAreAwaited(t *testing.T) {
	began := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	refused := errors.New("the database system is starting up")
	type answer struct {
		memberWAL
		failure error
		after   time.Duration
	}
	standby := func(position int64, after time.Duration) answer {
		return answer{memberWAL: memberWAL{position: position}, after: after}
	}
	silent := func(after time.Duration) answer { return answer{failure: refused, after: after} }
	for name, c := range map[string]struct {
		answers []answer
		want    memberVerdict
		err     error
	}{
		"it has all":                                {[]answer{standby(100, 0)}, memberHasAll, nil},
		"the primary has all":                       {[]answer{{memberWAL: memberWAL{101, true}}}, memberHasAll, nil},
		"it receives":                               {[]answer{standby(1, 0), standby(2, 59*time.Second), standby(3, 110*time.Second)}, memberIsAwaited, nil},
		"it receives nothing more":                  {[]answer{standby(1, time.Second), standby(1, 62*time.Second)}, memberIsSkipped, nil},
		"it does not answer at once":                {[]answer{silent(0)}, memberIsAwaited, nil},
		"it answers after it was started again":     {[]answer{standby(1, 0), silent(30 * time.Second), standby(100, 59*time.Second)}, memberHasAll, nil},
		"it does not answer for long":               {[]answer{silent(0), silent(61 * time.Second)}, memberIsSkipped, nil},
		"it is promoted with less than all":         {[]answer{standby(1, 0), {memberWAL: memberWAL{2, true}, after: time.Second}}, memberIsAwaited, errPromoted},
		"it was promoted before, and moves no more": {[]answer{{memberWAL: memberWAL{0, true}, after: time.Hour}}, memberIsAwaited, errPromoted},
	} {
		w := memberWait{position: 100, patience: time.Minute, moved: began}
		got, err := memberVerdict(-1), error(nil)
		for _, a := range c.answers {
			got, err = w.judge(a.memberWAL, a.failure, began.Add(a.after))
		}
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %d, %v", name, got, err)
		}
	}
}
