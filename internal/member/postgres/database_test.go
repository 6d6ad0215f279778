package postgres

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSlotPlan(t *testing.T) {
	members := []string{"a-0", "a-1", "a-2"}
	cases := []struct {
		name         string
		existing     []slot
		drop, create []string
	}{
		{"every other member gets a slot", nil, nil, []string{"holdfast_a_1", "holdfast_a_2"}},
		{"what is there stays", []slot{{Name: "holdfast_a_1", Active: true}, {Name: "holdfast_a_2"}}, nil, nil},
		{"a former member's slot is dropped", []slot{{Name: "holdfast_a_1"}, {Name: "holdfast_a_2"}, {Name: "holdfast_a_3"}}, []string{"holdfast_a_3"}, nil},
		{"an active slot is not dropped", []slot{{Name: "holdfast_a_1"}, {Name: "holdfast_a_2"}, {Name: "holdfast_a_3", Active: true}}, nil, nil},
		{"somebody else's slot is not touched", []slot{{Name: "holdfast_a_1"}, {Name: "holdfast_a_2"}, {Name: "debezium", Lost: true}}, nil, nil},
		{"a lost slot is made anew", []slot{{Name: "holdfast_a_1", Lost: true}, {Name: "holdfast_a_2"}}, []string{"holdfast_a_1"}, []string{"holdfast_a_1"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			drop, create := slotPlan(c.existing, members, "a-0")
			if diff := cmp.Diff([][]string{c.drop, c.create}, [][]string{drop, create}); diff != "" {
				t.Errorf("drop, create (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFirstDatabase(t *testing.T) {
	declared := account{"shop", "shopper", "s3cret"}
	cases := []struct {
		name, comment string
		want          firstDatabase
		account       account
	}{
		{"new data takes the declared names", "", firstDatabase{}, declared},
		{"somebody else's comment is none", "mine", firstDatabase{}, declared},
		{"an older agent recorded no names", bootstrapped, firstDatabase{Done: true}, declared},
		{"names that the API would not take are none", firstDatabase{Database: "app", Owner: strings.Repeat("x", 64)}.comment(), firstDatabase{Done: true}, declared},
		{"what was recorded counts", firstDatabase{Database: "app", Owner: "app"}.comment(),
			firstDatabase{true, "app", "app"}, account{"app", "app", "s3cret"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := parseFirstDatabase(c.comment)
			if got != c.want || got.account(declared) != c.account {
				t.Errorf("%+v, account %+v", got, got.account(declared))
			}
		})
	}
}

func TestVerifier(t *testing.T) {
	verifier, err := newVerifier("s3cret")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(verifier, "s3cret") {
		t.Error("the verifier holds the password")
	}
	if !verifies(verifier, "s3cret") || verifies(verifier, "s3creT") {
		t.Errorf("%s does not tell passwords apart", verifier)
	}
	for _, bad := range []string{"", "md5abc", "SCRAM-SHA-256$", "SCRAM-SHA-256$4096:!!$x:y", "SCRAM-SHA-256$999999999:AAAA$x:y"} {
		if verifies(bad, "s3cret") {
			t.Errorf("%q verifies", bad)
		}
	}
}

// The verifier of RFC 7677's example, as PostgreSQL stores it.
func TestVerifierOfExample(t *testing.T) {
	salt := []byte{0x5b, 0x6d, 0x99, 0x68, 0x9d, 0x12, 0x35, 0x8e, 0xec, 0xa0, 0x4b, 0x14, 0x12, 0x36, 0xfa, 0x81}
	got, err := verifierOf("pencil", salt, 4096)
	want := "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
	if err != nil || got != want {
		t.Errorf("got %s, %v", got, err)
	}
}

func TestParseVersion(t *testing.T) {
	cases := []struct {
		out, version string
		major        int
	}{
		{"postgres (PostgreSQL) 17.4 (Debian 17.4-1.pgdg120+2)\n", "17.4", 17},
		{"postgres (PostgreSQL) 15.18\n", "15.18", 15},
		{"postgres (PostgreSQL) 18beta1\n", "18beta1", 18},
	}
	for _, c := range cases {
		version, major, err := parseVersion(c.out)
		if version != c.version || major != c.major || err != nil {
			t.Errorf("%q: %s, %d, %v", c.out, version, major, err)
		}
	}
	if _, _, err := parseVersion("mysqld  Ver 8.4.0"); err == nil {
		t.Error("another program's version was accepted")
	}
}

func TestParseControlData(t *testing.T) {
	out := `pg_control version number:            1700
Database system identifier:           7710482487831486488
Database cluster state:               shut down
Latest checkpoint location:           0/5000028
Latest checkpoint's REDO location:    0/5000010
Bytes per WAL segment:                16777216
Latest checkpoint's TimeLineID:       3
wal_level setting:                    replica
track_commit_timestamp setting:       on
max_connections setting:              100
max_worker_processes setting:         8
max_wal_senders setting:              20
max_prepared_xacts setting:           0
max_locks_per_xact setting:           64
`
	want := controlData{SystemIdentifier: "7710482487831486488", State: "shut down", Checkpoint: "0/5000028", Timeline: 3, Redo: "0/5000010", SegmentSize: 16 << 20, WALLevel: "replica", CommitTimestamps: "on",
		Floors: map[string]int64{"max_connections": 100, "max_worker_processes": 8, "max_wal_senders": 20, "max_prepared_transactions": 0, "max_locks_per_transaction": 64}}
	got, err := parseControlData(out)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if _, err := parseControlData("nothing"); err == nil {
		t.Error("nonsense was accepted")
	}
}

func TestInitdbLocale(t *testing.T) {
	for major, want := range map[int]string{15: "--locale=C.UTF-8", 17: "--builtin-locale=C.UTF-8", 18: "--builtin-locale=C.UTF-8"} {
		if args := strings.Join(initdbArgs("x", major), " "); !strings.Contains(args, want) || strings.Contains(args, "builtin") != (major >= 17) {
			t.Errorf("%d: %s", major, args)
		}
	}
}
