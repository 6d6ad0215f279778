package settings

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/internal/tune"
)

func input() Input {
	return Input{
		Host: "a-0.a-members.ns.svc", ServerID: 17, GroupName: "5b8f3c1e-0000-5000-8000-000000000001",
		Seeds:  []string{"a-0.a-members.ns.svc:3306", "a-1.a-members.ns.svc:3306"},
		RunDir: "/run/holdfast/mysql", DataDir: "/data/mysql", CertificateDir: "/run/holdfast/mysql/tls",
		VolumeSize: 10 * gibibyte, Memory: Memory{Request: gibibyte},
	}
}

func TestDeclaredParametersAreTaken(t *testing.T) {
	in := input()
	in.Parameters = map[string]string{"max_connections": "7", "sql_mode": "ANSI", "group_replication_transaction_size_limit": "1000"}
	s := ComputeSettings(in)
	for name, want := range in.Parameters {
		if s[name] != want {
			t.Errorf("%s is %q", name, s[name])
		}
	}
}

// No declared parameter changes what Holdfast relies on, under whatever name.
func TestOwnedSettingsAreRefused(t *testing.T) {
	in := input()
	in.Parameters = map[string]string{}
	for name := range ownSettings(in) {
		in.Parameters[name] = "declared"
		in.Parameters["loose_"+name] = "declared"
		in.Parameters["skip_"+name] = "declared"
		in.Parameters[strings.ReplaceAll(name, "_", "-")] = "declared"
		in.Parameters[strings.ToUpper(name)] = "declared"
		in.Parameters[strings.Replace(name, "_", "-", 1)] = "declared"
	}
	for _, name := range neverSet {
		in.Parameters[name] = "declared"
	}
	for _, prefix := range neverPrefixes {
		in.Parameters[prefix+"anything"] = "declared"
	}
	for name, value := range ComputeSettings(in) {
		if strings.Contains(value, "declared") {
			t.Errorf("%s = %s", name, value)
		}
	}
	if diff := cmp.Diff(ComputeSettings(input()), ComputeSettings(in)); diff != "" {
		t.Error(diff)
	}
}

func TestRefusalsNameTheRemedy(t *testing.T) {
	cases := []struct{ name, parameter, value, want string }{
		{"an ordinary one", "max_connections", "5", ""},
		{"a name of its own", "skip_show_database", "ON", ""},
		{"one of the group that may be declared", "group_replication_flow_control_mode", "DISABLED", ""},
		{"an owned one", "server_id", "5", "spec.parameters.server_id is set by Holdfast and cannot be declared: remove it"},
		{"one of the group", "group_replication_bootstrap_group", "ON", "spec.parameters.group_replication_bootstrap_group is set by Holdfast and cannot be declared: remove it"},
		{"one that loses acknowledged writes", "sync_binlog", "0", "spec.parameters.sync_binlog is set by Holdfast and cannot be declared: remove it"},
		{"dashes", "max-connections", "5", "spec.parameters.max-connections: write max_connections"},
		{"upper case", "Max_Connections", "5", `spec.parameters: "Max_Connections" is no name of a system variable: use lower-case letters, digits and underscores`},
		{"a line", "a\nserver_id", "5", `spec.parameters: "a\nserver_id" is no name of a system variable: use lower-case letters, digits and underscores`},
		{"a modifier", "maximum_sort_buffer_size", "5", "spec.parameters.maximum_sort_buffer_size begins with a modifier: write the system variable's own name and its value"},
		{"a long value", "init_connect", strings.Repeat("x", 1025), "spec.parameters.init_connect is longer than 1024 bytes: shorten it"},
		{"a control character", "init_connect", "a\x00b", "spec.parameters.init_connect contains a control character: remove it"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := FindRefusal(c.parameter, c.value); got != c.want {
				t.Errorf("got %q", got)
			}
		})
	}
}

func TestMemoryIsDivided(t *testing.T) {
	cases := []struct {
		name string
		Memory
		pool, connections int64 // MiB
	}{
		{"nothing declared", Memory{}, 128, 102},
		{"nothing declared, on a large node", Memory{Limit: 64 * gibibyte}, 128, 102},
		{"too little", Memory{Limit: 512 * mebibyte, Request: 512 * mebibyte}, 128, 100},
		{"the least", Memory{Limit: gibibyte, Request: gibibyte}, 128, 102},
		{"a request alone", Memory{Limit: 64 * gibibyte, Request: 2 * gibibyte}, 512, 204},
		{"a limit that is not reserved", Memory{Limit: 4 * gibibyte, Request: 2 * gibibyte}, 512, 204},
		{"a limit below the request, as it may be while pods are resized", Memory{Limit: gibibyte, Request: 4 * gibibyte}, 128, 102},
		{"four gibibytes", Memory{Limit: 4 * gibibyte, Request: 4 * gibibyte}, 2048, 409},
		{"sixteen", Memory{Limit: 16 * gibibyte, Request: 16 * gibibyte}, 11264, 1000},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := memorySettings(c.Memory)
			pool, _ := strconv.ParseInt(s["innodb_buffer_pool_size"], 10, 64)
			connections, _ := strconv.ParseInt(s["max_connections"], 10, 64)
			if pool != c.pool*mebibyte || connections != c.connections {
				t.Errorf("a pool of %d MiB, %d connections", pool/mebibyte, connections)
			}
		})
	}
}

// What is said to follow the memory request is what follows it, from 2 GiB on.
func TestComputedFromMemory(t *testing.T) {
	less := memorySettings(Memory{Request: 2 * gibibyte})
	var changed []string
	for name, value := range memorySettings(Memory{Request: 4 * gibibyte}) {
		if value != less[name] {
			changed = append(changed, name)
		}
	}
	slices.Sort(changed)
	if want := tune.ListComputed(tune.Spec{Engine: tune.MySQL}, "requests.memory"); !slices.Equal(changed, want) {
		t.Errorf("%v change, and %v are said to", changed, want)
	}
}

// Of any memory that a member may have, the buffer pool leaves what the server itself
// takes, and grows with it.
func TestPoolLeavesMemory(t *testing.T) {
	last := int64(0)
	for memory := LeastMemory; memory <= 256*gibibyte; memory += 100 * mebibyte {
		pool, err := strconv.ParseInt(memorySettings(Memory{Limit: memory, Request: memory})["innodb_buffer_pool_size"], 10, 64)
		if err != nil || pool < last || pool > memory-fixedMemory || pool%poolStep != 0 {
			t.Fatalf("of %d MiB the pool has %d MiB, after %d: %v", memory/mebibyte, pool/mebibyte, last/mebibyte, err)
		}
		last = pool
	}
}

func TestServerIDs(t *testing.T) {
	seen := map[uint32]string{}
	for _, uid := range []string{"", "a", "b", "2f1d6c0e-6f0b-4c55-9b5e-9f6ac1f3b001", "2f1d6c0e-6f0b-4c55-9b5e-9f6ac1f3b002"} {
		for ordinal := range 9 {
			id, name := ServerID(uid, ordinal), uid+"/"+strconv.Itoa(ordinal)
			if id == 0 || seen[id] != "" {
				t.Errorf("%s and %s have the ID %d", name, seen[id], id)
			}
			seen[id] = name
		}
	}
}

func TestGroupNameIsLeftOutUntilItIsKnown(t *testing.T) {
	in := input()
	in.GroupName = ""
	if _, set := ComputeSettings(in)["group_replication_group_name"]; set {
		t.Error("a member without a group names one")
	}
	in.Isolated = true
	if ComputeSettings(in)["skip_networking"] != "ON" {
		t.Error("a bootstrap can be reached")
	}
}

func TestFileIsOneLinePerSetting(t *testing.T) {
	file := RenderSettings(map[string]string{
		"b": "it's # \"no\" comment\\", "a": "1", "group_replication_x": "2", "clone_y": "3", "init_connect": "SET a=1;\nserver_id=5",
	})
	want := `[mysqld]
a="1"
b="it's # \"no\" comment\\"
loose_clone_y="3"
loose_group_replication_x="2"
init_connect="SET a=1;\nserver_id=5"
`
	if diff := cmp.Diff(want, file); diff != "" {
		t.Error(diff)
	}
	for line := range strings.Lines(RenderSettings(ComputeSettings(input()))) {
		if len(line) > 4000 {
			t.Errorf("a line of %d bytes is cut", len(line))
		}
	}
}

func TestChangesOfARunningServer(t *testing.T) {
	running := map[string]string{"same": "1", "number": "5", "size": "1G", "text": "a", "gone": "x"}
	wanted := map[string]string{"same": "1", "number": "6", "size": "16M", "text": "it's\\", "fresh": "0.5", "huge": "99999999999E"}
	want := []Change{
		{"fresh", []string{"SET GLOBAL fresh = 0.5", "SET GLOBAL fresh = '0.5'"}},
		{"huge", []string{"SET GLOBAL huge = '99999999999E'"}},
		{"number", []string{"SET GLOBAL number = 6", "SET GLOBAL number = '6'"}},
		{"size", []string{"SET GLOBAL size = 16777216", "SET GLOBAL size = '16M'"}},
		{"text", []string{`SET GLOBAL text = 'it''s\\'`}},
		{"gone", []string{"SET GLOBAL gone = DEFAULT"}},
	}
	if diff := cmp.Diff(want, PlanChanges(running, wanted)); diff != "" {
		t.Error(diff)
	}
	if changes := PlanChanges(wanted, maps.Clone(wanted)); len(changes) > 0 {
		t.Errorf("nothing changed, and %v is planned", changes)
	}
}

func TestErrorsAreJudged(t *testing.T) {
	for number, want := range map[uint16]Verdict{1238: NeedsRestart, 1193: NeedsRestart, 1230: NeedsRestart, 1232: WrongType, 1231: WrongValue, 1205: Unclear, 0: Unclear} {
		if got := JudgeError(number); got != want {
			t.Errorf("%d: %d", number, got)
		}
	}
}

func TestRefusalsOfTheServerAreRead(t *testing.T) {
	const at = "2026-11-25T21:00:18.749659Z 0 "
	cases := []struct{ name, stderr, want string }{
		{"a value", at + "[ERROR] [MY-000077] [Server] mysqld: Error while setting value '5xx' to 'binlog_format'.\n" + at + "[ERROR] [MY-010119] [Server] Aborting\n",
			"binlog_format: Error while setting value '5xx' to 'binlog_format'"},
		{"a name", at + "[ERROR] [MY-000067] [Server] unknown variable 'nosuch-thing=1'.\n", "nosuch_thing: unknown system variable"},
		{"two", at + "[ERROR] [MY-000058] [Server] Unknown suffix 'a' used for variable 'max_connections' (value 'abc').\n" +
			at + "[ERROR] [MY-000067] [Server] unknown variable 'x=1'.\n",
			"max_connections: Unknown suffix 'a' used for variable 'max_connections' (value 'abc'); x: unknown system variable"},
		{"something else", "mysqld: cannot open shared object file\n", "mysqld: cannot open shared object file"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := DescribeRefusal(c.stderr); got != c.want {
				t.Errorf("got %q", got)
			}
		})
	}
	got := FindAdjusted(at + "[Warning] [MY-000081] [Server] option 'max-connections': unsigned value 99999999 adjusted to 100000.\n")
	if diff := cmp.Diff(map[string]string{"max_connections": "unsigned value 99999999 adjusted to 100000"}, got); diff != "" {
		t.Error(diff)
	}
}

// A setting that may not be declared is in one list only, so that each has one place.
func TestListsHoldNamesOnce(t *testing.T) {
	own := ownSettings(input())
	for i, name := range neverSet {
		if _, twice := own[name]; twice || slices.Contains(neverSet[:i], name) {
			t.Errorf("%s is listed twice", name)
		}
	}
}
