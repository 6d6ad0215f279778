package agentapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/internal/agentapi/etcdapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/mysqlapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
)

// What agents and operators wrote before the types of single engines had
// packages of their own is read the same, and is written with the same keys.
func TestWireStaysFlat(t *testing.T) {
	for file, into := range map[string]any{
		"config_postgres.json": &ClusterConfig{}, "config_etcd.json": &ClusterConfig{}, "config_mysql.json": &ClusterConfig{},
		"restore_etcd.json": &RestoreTask{},
	} {
		t.Run(file, func(t *testing.T) {
			recorded, err := os.ReadFile(filepath.Join("testdata", file))
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(recorded, into); err != nil {
				t.Fatal(err)
			}
			written, err := json.Marshal(into)
			if err != nil {
				t.Fatal(err)
			}
			var before, now map[string]any
			if err := json.Unmarshal(recorded, &before); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(written, &now); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, now); diff != "" {
				t.Errorf("keys that were lost or renamed (-recorded +written):\n%s", diff)
			}
		})
	}
}

// Members of all engines report byte for byte what was recorded: those of PostgreSQL and
// etcd what they did when their fields stood in one type.
func TestWireOfStatusIsUnchanged(t *testing.T) {
	for engine, decode := range map[string]func([]byte) (Status, error){
		"postgres": DecodeStatus[postgresapi.ReplicationStatus], "etcd": DecodeStatus[etcdapi.GroupStatus],
		"mysql": DecodeStatus[mysqlapi.GroupStatus],
	} {
		t.Run(engine, func(t *testing.T) {
			for _, form := range []string{".json", ".wire"} {
				recorded, err := os.ReadFile(filepath.Join("testdata", "status_"+engine+form))
				if err != nil {
					t.Fatal(err)
				}
				status, err := decode(recorded)
				if err != nil {
					t.Fatal(err)
				}
				if form == ".json" { // what no other program writes, escaped
					status.Message += ` <a> & "b"`
				}
				want, err := os.ReadFile(filepath.Join("testdata", "status_"+engine+".wire"))
				if err != nil {
					t.Fatal(err)
				}
				var written bytes.Buffer
				if err := json.NewEncoder(&written).Encode(status); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(string(want), written.String()); diff != "" {
					t.Errorf("%s: a status is written otherwise (-recorded +written):\n%s", form, diff)
				}
			}
		})
	}
}

// A field of one engine that cannot be read fails the whole answer, as any other
// does; what another engine reports is left out.
func TestDecodeStatusReadsOneEngine(t *testing.T) {
	text := []byte(`{"pod": "orders-0", "timeline": 3, "dataFill": "half"}`)
	status, err := DecodeStatus[postgresapi.ReplicationStatus](text)
	if err != nil || status.Pod != "orders-0" || ReadEngineStatus[postgresapi.ReplicationStatus](&status).Timeline != 3 {
		t.Errorf("read %+v, %v", status, err)
	}
	if got := ReadEngineStatus[etcdapi.GroupStatus](&status); !reflect.DeepEqual(got, etcdapi.GroupStatus{}) {
		t.Errorf("it reports for another engine %+v", got)
	}
	if _, err := DecodeStatus[etcdapi.GroupStatus](text); err == nil {
		t.Error("half a number was read")
	}
}

// A copy of a status keeps what it had when the status changes.
func TestChangeEngineStatusLeavesCopies(t *testing.T) {
	var status Status
	set := func(timeline int64) {
		ChangeEngineStatus(&status, func(r *postgresapi.ReplicationStatus) { r.Timeline = timeline })
	}
	set(1)
	before := status
	set(2)
	if was, is := ReadEngineStatus[postgresapi.ReplicationStatus](&before).Timeline, ReadEngineStatus[postgresapi.ReplicationStatus](&status).Timeline; was != 1 || is != 2 {
		t.Errorf("timelines %d and %d", was, is)
	}
}

// Insights are read and written as they are recorded.
func TestInsightsOnTheWire(t *testing.T) {
	recorded, err := os.ReadFile(filepath.Join("testdata", "insights.json"))
	if err != nil {
		t.Fatal(err)
	}
	var insights Insights
	if err := json.Unmarshal(recorded, &insights); err != nil {
		t.Fatal(err)
	}
	if len(insights.Classes) != 1 || insights.Classes[0].Statements[0].QueryID != math.MinInt64 {
		t.Errorf("%+v", insights)
	}
	written, err := json.Marshal(insights)
	if err != nil {
		t.Fatal(err)
	}
	var want, got any
	if err := errors.Join(json.Unmarshal(recorded, &want), json.Unmarshal(written, &got)); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v: written %s", err, written)
	}
}

// Tuning is read and written as it is recorded.
func TestTuningOnTheWire(t *testing.T) {
	recorded, err := os.ReadFile(filepath.Join("testdata", "tuning.json"))
	if err != nil {
		t.Fatal(err)
	}
	var tuning Tuning
	if err := json.Unmarshal(recorded, &tuning); err != nil || len(tuning.Slots) != 1 || tuning.Slots[0].Sums[TuningTempBytes] != 1<<20 {
		t.Fatalf("%v: %+v", err, tuning)
	}
	written, err := json.Marshal(tuning)
	if err != nil {
		t.Fatal(err)
	}
	var want, got any
	if err := errors.Join(json.Unmarshal(recorded, &want), json.Unmarshal(written, &got)); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v: written %s", err, written)
	}
}

// Every field of the wire types is in some recorded object, so that none is
// renamed unnoticed; and no two embedded types have a key in common, which
// encoding/json would drop.
func TestWireIsRecordedInFull(t *testing.T) {
	for _, c := range []struct {
		of    []reflect.Type
		files []string
	}{
		{[]reflect.Type{reflect.TypeFor[Status](), reflect.TypeFor[postgresapi.ReplicationStatus](), reflect.TypeFor[etcdapi.GroupStatus](), reflect.TypeFor[mysqlapi.GroupStatus]()}, []string{"status_postgres.json", "status_etcd.json", "status_mysql.json"}},
		{[]reflect.Type{reflect.TypeFor[mysqlapi.MemberReport]()}, []string{"report_mysql.json"}},
		{[]reflect.Type{reflect.TypeFor[Insights]()}, []string{"insights.json"}},
		{[]reflect.Type{reflect.TypeFor[Tuning]()}, []string{"tuning.json"}},
		{[]reflect.Type{reflect.TypeFor[ClusterConfig]()}, []string{"config_postgres.json", "config_etcd.json", "config_mysql.json"}},
	} {
		recorded := map[string]bool{}
		for _, file := range c.files {
			data, err := os.ReadFile(filepath.Join("testdata", file))
			if err != nil {
				t.Fatal(err)
			}
			var object map[string]any
			if err := json.Unmarshal(data, &object); err != nil {
				t.Fatal(err)
			}
			for key := range object {
				recorded[key] = true
			}
		}
		keys := map[string]bool{}
		var fields []reflect.StructField
		for _, of := range c.of {
			fields = append(fields, reflect.VisibleFields(of)...)
		}
		for _, field := range fields {
			key := jsonKey(field)
			if field.Anonymous && key == "" || key == "-" {
				continue
			}
			if keys[key] {
				t.Errorf("%s: two fields have the key %q", c.of, key)
			}
			keys[key] = true
			if !recorded[key] {
				t.Errorf("%s: no recorded object has the key %q", c.of, key)
			}
		}
	}
}

func jsonKey(field reflect.StructField) string {
	key := field.Tag.Get("json")
	for i, c := range key {
		if c == ',' {
			return key[:i]
		}
	}
	return key
}
