package writehistory

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// acked is a write that took a millisecond from a time on.
func acked(client string, number int, server string, timeline int64, sent time.Duration) Write {
	sent *= time.Millisecond
	return Write{Client: client, Number: number, Sent: sent, Ended: sent + time.Millisecond, Acknowledged: true, Server: server, Timeline: timeline}
}

// failed is a write whose outcome is not known.
func failed(client string, number int, sent time.Duration) Write {
	sent *= time.Millisecond
	return Write{Client: client, Number: number, Sent: sent, Ended: sent + time.Second}
}

func TestCheckOnePrimary(t *testing.T) {
	failover := []Write{acked("rw", 1, "a", 1, 10), failed("rw", 2, 20), acked("rw", 3, "b", 2, 5000)}
	for _, test := range []struct {
		about     string
		writes    []Write
		elections []Election
		want      string // part of the error
	}{
		{"a failover", failover, []Election{{1, 0}, {2, 4 * time.Second}}, ""},
		{"no write at all", nil, nil, ""},
		{"the former primary commits before the next one does", append(failover, acked("inside", 1, "a", 1, 4999)), nil, ""},
		{"the order of two commits is not known", append(failover, acked("inside", 1, "a", 1, 5001)), nil, ""},
		{"the former primary commits after the next one", append(failover, acked("inside", 1, "a", 1, 5002)), nil,
			"write 1 of inside was committed by a on timeline 1, 1ms after timeline 2 had begun"},
		{"the former primary commits after the Lease was another's", append(failover, acked("inside", 1, "a", 1, 4001)), []Election{{2, 4 * time.Second}},
			"on timeline 1, 1ms after timeline 2 had begun"},
		{"the former primary's write fails after the next one's", append(failover, failed("inside", 1, 6000)), nil, ""},
		{"one client sees timelines alternate", append(failover, acked("rw", 4, "a", 1, 6000), acked("rw", 5, "b", 2, 6010)), nil, "write 4 of rw"},
		{"two servers have one timeline", append(failover, acked("inside", 1, "c", 2, 4990)), nil, "which is also"},
	} {
		t.Run(test.about, func(t *testing.T) {
			checkError(t, CheckOnePrimary(test.writes, test.elections), test.want)
		})
	}
}

func TestFindLosses(t *testing.T) {
	writes := []Write{
		acked("rw", 1, "a", 1, 10), acked("rw", 2, "a", 1, 20), acked("rw", 3, "a", 1, 30), failed("rw", 4, 40),
		acked("rw", 5, "b", 2, 5000), acked("rw", 6, "b", 2, 5010), acked("inside", 1, "a", 1, 15),
	}
	for _, test := range []struct {
		about string
		kept  map[string][]int
		lost  []Loss
		want  string
	}{
		{"all are there", map[string][]int{"rw": {1, 2, 3, 5, 6}, "inside": {1}}, nil, ""},
		{"and one that was not acknowledged", map[string][]int{"rw": {6, 5, 4, 3, 2, 1}, "inside": {1}}, nil, ""},
		{"the end of the first timeline is lost", map[string][]int{"rw": {1, 5, 6}}, []Loss{{"inside", 1, []int{1}}, {"rw", 1, []int{2, 3}}}, ""},
		{"the middle of the first timeline is lost", map[string][]int{"rw": {1, 3, 5, 6}, "inside": {1}}, []Loss{{"rw", 1, []int{2}}},
			"write 3 of rw is there, and 2 before it on timeline 1 is lost"},
		{"the end of the newest timeline is lost", map[string][]int{"rw": {1, 2, 3, 5}, "inside": {1}}, []Loss{{"rw", 2, []int{6}}},
			"1 acknowledged writes of rw are lost on timeline 2"},
		{"a row that was not sent is there", map[string][]int{"rw": {1, 2, 3, 5, 6, 7}, "inside": {1}}, nil, "row 7 of rw is there"},
	} {
		t.Run(test.about, func(t *testing.T) {
			lost, err := FindLosses(writes, test.kept, 2)
			checkError(t, err, test.want)
			if diff := cmp.Diff(test.lost, lost); diff != "" {
				t.Error(diff)
			}
		})
	}
	// After another failover, which the client did not see, the second timeline may have lost its end.
	if lost, err := FindLosses(writes, map[string][]int{"rw": {1, 2, 3, 5}, "inside": {1}}, 3); err != nil || CountLost(lost) != 1 {
		t.Errorf("lost %v, %v", lost, err)
	}
}

func TestErrorsAreLimited(t *testing.T) {
	writes := []Write{acked("rw", 1, "b", 2, 0)}
	for n := range 1000 {
		writes = append(writes, acked("inside", n+1, "a", 1, time.Duration(100+n)))
	}
	err := CheckOnePrimary(writes, nil)
	checkError(t, err, "and 990 more")
	if lines := strings.Count(err.Error(), "\n"); lines > mostErrors {
		t.Errorf("%d lines", lines)
	}
}

func TestCompareContent(t *testing.T) {
	same := map[string]string{"a": "1:x", "b": "2:y"}
	for _, test := range []struct {
		about   string
		members map[string]map[string]string
		want    string
	}{
		{"the same", map[string]map[string]string{"m-0": same, "m-1": same}, ""},
		{"other rows", map[string]map[string]string{"m-0": same, "m-1": {"a": "1:x", "b": "2:z"}}, `table b of m-1 is "2:z", of m-0 "2:y"`},
		{"a table more", map[string]map[string]string{"m-0": {"a": "1:x"}, "m-1": same}, `table b of m-1`},
		{"one member", map[string]map[string]string{"m-0": same}, "nothing to compare"},
		{"no table", map[string]map[string]string{"m-0": {}, "m-1": {}}, "nothing to compare"},
	} {
		t.Run(test.about, func(t *testing.T) { checkError(t, CompareContent(test.members), test.want) })
	}
}

func TestRecorderMeasures(t *testing.T) {
	r := NewRecorder()
	r.began = time.Now().Add(-10 * time.Second)
	for n, sent := range []time.Duration{1000, 1010, 4000, 9000} {
		r.AddWrite(acked("rw", n+1, "a", 1, sent))
		r.AddAttempt(Attempt{Began: sent * time.Millisecond, Connected: sent != 4000})
	}
	r.AddWrite(failed("rw", 5, 9100))
	r.AddWrite(acked("other", 1, "a", 1, 6000))
	if gap := r.LongestGap(0, "rw"); gap != 5*time.Second {
		t.Errorf("the longest gap is %s", gap)
	}
	if gap := r.LongestGap(2*time.Second, "rw"); gap != 5*time.Second {
		t.Errorf("the longest gap since is %s", gap)
	}
	if gap := r.LongestGap(0, "none"); gap < 10*time.Second {
		t.Errorf("the longest gap of a client that never wrote is %s", gap)
	}
	if refusal := r.LongestRefusal(0); refusal != 7990*time.Millisecond {
		t.Errorf("the longest refusal is %s", refusal)
	}
	if connected, refused := r.CountAttempts(1010 * time.Millisecond); connected != 2 || refused != 1 {
		t.Errorf("%d connected, %d refused", connected, refused)
	}
	r.AddElection(Election{2, time.Second})
	r.AddElection(Election{2, 3 * time.Second})
	if diff := cmp.Diff([]Election{{2, time.Second}}, r.Elections()); diff != "" {
		t.Error(diff)
	}
	if got := r.Writes(5*time.Second, "rw"); len(got) != 2 {
		t.Errorf("writes since: %v", got)
	}
	least, middle, most := Spread([]time.Duration{3, 1, 2})
	if least != 1 || middle != 2 || most != 3 {
		t.Errorf("spread %d %d %d", least, middle, most)
	}
}

// checkError wants an error with a text in it, or none.
func checkError(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("unexpected: %v", err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("error %v, want %q", err, want)
	}
}
