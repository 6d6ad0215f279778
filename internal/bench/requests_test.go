//go:build bench

package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// operatorName is the user that the operator is to the API server.
const operatorName = "holdfast-bench"

// auditPolicy logs every request of the operator once, when it arrives, and
// no other client's.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [ResponseStarted, ResponseComplete]
rules:
  - {level: Metadata, users: [` + operatorName + `]}
  - {level: None}
`

// auditLog is where the API server writes down what the operator asks.
type auditLog struct {
	t      *testing.T
	policy string
	file   string
	// read is how far, in bytes.
	read int64
}

func newAuditLog(t *testing.T, dir string) *auditLog {
	t.Helper()
	l := &auditLog{t: t, policy: filepath.Join(dir, "audit-policy.yaml"), file: filepath.Join(dir, "audit.log")}
	if err := os.WriteFile(l.policy, []byte(auditPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	return l
}

// requests by verb and resource.
type requests map[string]int

// takeRequests returns what was asked since the last call: requests, and apart from
// them the watches that were opened.
func (l *auditLog) takeRequests() (asked, watches requests) {
	l.t.Helper()
	file, err := os.Open(l.file)
	if err != nil {
		l.t.Fatal(err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.NewSectionReader(file, l.read, math.MaxInt64-l.read))
	if err != nil {
		l.t.Fatal(err)
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1] // the last line may be half written
	l.read += int64(len(text))
	asked, watches = requests{}, requests{}
	for line := range bytes.Lines(text) {
		var event struct {
			Verb, RequestURI string
			ObjectRef        *struct{ Resource, Subresource string }
		}
		if err := json.Unmarshal(line, &event); err != nil {
			l.t.Fatalf("audit log: %v", err)
		}
		what := event.RequestURI
		if ref := event.ObjectRef; ref != nil {
			what = strings.TrimSuffix(ref.Resource+"/"+ref.Subresource, "/")
		}
		if event.Verb == "watch" {
			watches[what]++
		} else {
			asked[event.Verb+" "+what]++
		}
	}
	return asked, watches
}

func (r requests) sumAll() int {
	sum := 0
	for _, n := range r {
		sum += n
	}
	return sum
}

// String is the sum and, where there is one, what it consists of.
func (r requests) String() string {
	if len(r) == 0 {
		return "0"
	}
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(r)) {
		parts = append(parts, fmt.Sprintf("%d %s", r[what], what))
	}
	return fmt.Sprintf("%d (%s)", r.sumAll(), strings.Join(parts, ", "))
}
