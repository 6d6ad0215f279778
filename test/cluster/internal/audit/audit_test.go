package audit

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

// line is an audit event as the API server writes it.
func line(stage, verb, user, object, code string, received time.Time) string {
	return `{"kind":"Event","stage":"` + stage + `","verb":"` + verb + `","requestURI":"/api/v1/x?limit=5",` +
		`"user":{"username":"` + user + `"},"userAgent":"agent/1 (linux)",` + object +
		`"responseStatus":{"code":` + code + `},"requestReceivedTimestamp":"` + received.Format(time.RFC3339Nano) + "\"}\n"
}

const (
	pod   = `"objectRef":{"resource":"pods","namespace":"a","name":"p"},`
	lease = `"objectRef":{"resource":"leases","namespace":"a","name":"l","apiGroup":"coordination.k8s.io"},`
	exec  = `"objectRef":{"resource":"pods","namespace":"a","name":"p","subresource":"exec"},`
)

func TestCount(t *testing.T) {
	row := func(verb, resource string, count int, codes map[int]int, first, last time.Time) Row {
		return Row{Kind{User: "u", UserAgent: "agent/1 (linux)", Verb: verb, Resource: resource}, count, codes, first, last}
	}
	later := noon.Add(time.Minute)
	cases := []struct {
		name, log string
		query     Query
		want      []Row
	}{
		{
			"equal requests make one row, the most frequent first",
			line("ResponseComplete", "get", "u", pod, "200", noon) +
				line("ResponseComplete", "update", "u", lease, "200", later) +
				line("ResponseComplete", "update", "u", lease, "409", noon),
			Query{},
			[]Row{
				row("update", "leases.coordination.k8s.io", 2, map[int]int{200: 1, 409: 1}, noon, later),
				row("get", "pods", 1, map[int]int{200: 1}, noon, noon),
			},
		},
		{
			"a watch counts when it starts, and a refused one once",
			line("ResponseStarted", "watch", "u", pod, "200", noon) +
				line("ResponseComplete", "watch", "u", pod, "200", noon) +
				line("ResponseComplete", "watch", "u", pod, "403", later),
			Query{},
			[]Row{row("watch", "pods", 2, map[int]int{200: 1, 403: 1}, noon, later)},
		},
		{
			"a long answer other than a watch counts when it ends",
			line("ResponseStarted", "create", "u", exec, "101", noon) + line("ResponseComplete", "create", "u", exec, "101", noon),
			Query{},
			[]Row{row("create", "pods/exec", 1, map[int]int{101: 1}, noon, noon)},
		},
		{
			"earlier requests do not count",
			line("ResponseComplete", "get", "u", pod, "200", noon) + line("ResponseComplete", "get", "u", pod, "200", later),
			Query{From: later},
			[]Row{row("get", "pods", 1, map[int]int{200: 1}, later, later)},
		},
		{
			"other users do not count",
			line("ResponseComplete", "get", "v", pod, "200", noon),
			Query{User: regexp.MustCompile("^u ")},
			[]Row{},
		},
		{
			"a request of no object goes by its path",
			line("ResponseComplete", "get", "u", "", "200", noon),
			Query{},
			[]Row{row("get", "/api/v1/x", 1, map[int]int{200: 1}, noon, noon)},
		},
		{
			"a line cut short by the API server's end does not count",
			`{"kind":"Event","sta` + line("ResponseComplete", "get", "u", pod, "200", noon) +
				line("ResponseComplete", "get", "u", pod, "200", later),
			Query{},
			[]Row{row("get", "pods", 1, map[int]int{200: 1}, later, later)},
		},
		{
			"an unfinished last line does not count",
			line("ResponseComplete", "get", "u", pod, "200", noon) + `{"kind":"Ev`,
			Query{},
			[]Row{row("get", "pods", 1, map[int]int{200: 1}, noon, noon)},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := CountRequests(strings.NewReader(c.log), c.query)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestCountByObject(t *testing.T) {
	log := line("ResponseComplete", "get", "u", pod, "200", noon)
	rows, err := CountRequests(strings.NewReader(log), Query{Objects: true})
	if err != nil || len(rows) != 1 || rows[0].Namespace != "a" || rows[0].Name != "p" {
		t.Errorf("got %+v, %v", rows, err)
	}
}

// A request that is to change nothing is another kind than one that changes something.
func TestDryRunsAreCountedApart(t *testing.T) {
	wet := line("ResponseComplete", "patch", "u", pod, "200", noon)
	dry := strings.Replace(wet, "?limit=5", "?dryRun=All&fieldManager=x", 1)
	named := strings.Replace(wet, "/api/v1/x?limit=5", "/api/v1/dryRun=All?fieldManager=dryRun", 1)
	rows, err := CountRequests(strings.NewReader(wet+dry+named), Query{})
	if err != nil || len(rows) != 2 || rows[0].Count != 2 || rows[0].DryRun || !rows[1].DryRun {
		t.Errorf("got %+v, %v", rows, err)
	}
}

func TestCountRefusesWhatIsNoLog(t *testing.T) {
	if _, err := CountRequests(strings.NewReader("hello\n"), Query{}); err == nil {
		t.Error("no error")
	}
}

func TestFilesAreTheOnesWrittenSince(t *testing.T) {
	folder := t.TempDir()
	times := map[string]time.Time{
		"audit-2030-01-01T10-00-00.000.log": noon.Add(-2 * time.Hour),
		"audit-2030-01-01T11-00-00.000.log": noon.Add(-time.Hour),
		"audit.log":                         noon,
		"policy.yaml":                       noon,
	}
	for name, written := range times {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, written, written); err != nil {
			t.Fatal(err)
		}
	}
	got, err := ListFiles(filepath.Join(folder, "audit.log"), noon.Add(-90*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{filepath.Join(folder, "audit-2030-01-01T11-00-00.000.log"), filepath.Join(folder, "audit.log")}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
