package recovery

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
)

// What the server tells of a recovery says how far it came.
func TestTale(t *testing.T) {
	at := func(text string) time.Time {
		parsed, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	failed := errors.New("ended")
	for _, c := range []struct {
		name  string
		lines []string
		err   error
		last  time.Time
		want  *Missed
	}{
		{"nothing", nil, failed, time.Time{}, nil},
		{"all is well", []string{"LOG:  redo done at 0/5000028 system usage: CPU", "LOG:  last completed transaction was at log time 2026-03-01 12:00:00.5+00"}, nil, at("2026-03-01T12:00:00.5Z"), nil},
		{"a restart point", []string{"2026-03-01 12:00:01 UTC [7] DETAIL:  Last completed transaction was at log time 2026-03-01 12:00:00.123456+00."}, failed, at("2026-03-01T12:00:00.123456Z"), nil},
		{"the log is short", []string{
			"LOG:  redo done at 1/A5000028", "LOG:  last completed transaction was at log time 2026-03-01 12:00:00+00", "FATAL:  recovery ended before configured recovery target was reached",
		}, failed, at("2026-03-01T12:00:00Z"), &Missed{End: "1/A5000028", Last: at("2026-03-01T12:00:00Z"), Err: failed}},
		{"the target is early", []string{"FATAL:  requested recovery stop point is before consistent recovery point"}, failed, time.Time{}, &Missed{Early: true, Err: failed}},
		{"a time that is none", []string{"LOG:  last completed transaction was at log time 2026-13-01 12:00:00+00"}, failed, time.Time{}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			seen := &progress{}
			for _, line := range c.lines {
				seen.readLine(line)
			}
			if got := seen.lastTransaction(); !got.Equal(c.last) {
				t.Errorf("the last transaction was at %s", got)
			}
			err := seen.explainFailure(c.err)
			var got *Missed
			errors.As(err, &got)
			if diff := cmp.Diff(c.want, got, cmpopts.IgnoreFields(Missed{}, "Err")); diff != "" || !errors.Is(err, c.err) {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// The log that is fetched has its place on the volume; a recovery without keeps
// to what it had.
func TestSettingsOfARecovery(t *testing.T) {
	if got := (*ArchivedWAL)(nil).recoverySettings(diskspace.Space{Total: 1 << 30}); got != nil {
		t.Errorf("without a log: %v", got)
	}
	l := &ArchivedWAL{Command: "fetch %f %p", Timeline: 12, Target: "recovery_target_name", Value: "it's here"}
	got := l.recoverySettings(diskspace.Space{Total: 5 << 30})
	for name, want := range map[string]string{
		"restore_command": "fetch %f %p", "recovery_target_timeline": "12", "recovery_target_name": "it's here",
		"recovery_target_inclusive": "on", "recovery_target_action": "promote", "max_wal_size": "512MB",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	l.Target = ""
	if _, set := l.recoverySettings(diskspace.Space{})["recovery_target_inclusive"]; set || l.recoverySettings(diskspace.Space{})["max_wal_size"] != "64MB" {
		t.Errorf("without a target: %v", l.recoverySettings(diskspace.Space{}))
	}
}
