package etcd

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRefusalIn(t *testing.T) {
	for name, c := range map[string]struct{ stderr, flag, message string }{
		"a name that it does not know": {"flag provided but not defined: -foo\nUsage:\n\n  etcd [flags]\n", "foo", "foo: unrecognized parameter"},
		"a value of another type":      {`invalid value "x" for flag -snapshot-count: parse error` + "\nUsage:\n", "snapshot-count", `snapshot-count: invalid value "x": parse error`},
		"no truth":                     {`invalid boolean value "x" for -pre-vote: parse error` + "\nUsage:\n", "pre-vote", `pre-vote: invalid boolean value "x": parse error`},
		"values that do not go together": {`{"level":"info","msg":"Running: ","args":["etcd"]}` + "\n" +
			`{"level":"warn","msg":"failed to verify flags","error":"--election-timeout[1000ms] should be at least as 5 times as --heartbeat-interval[5000ms]"}` + "\n",
			"", "failed to verify flags: --election-timeout[1000ms] should be at least as 5 times as --heartbeat-interval[5000ms]"},
		"what it does not say in its log": {"out of file descriptors\n", "", "out of file descriptors"},
	} {
		err := refusalIn(c.stderr)
		var got *refusal
		if !errors.As(err, &got) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff([]string{c.flag, c.message}, []string{got.flag, got.message}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	well := `{"level":"info","msg":"Running: "}` + "\n" + `{"level":"fatal","msg":"failed to list data directory","error":"open /dev/null/etcd: not a directory"}`
	if err := refusalIn(well); err != nil {
		t.Errorf("settings that are well: %v", err)
	}
}

// etcd of a release that knows some flags, whose values must not be "bad", and
// not "mixed" together with anything else.
func knowing(flags ...string) func(map[string]string) error {
	return func(parameters map[string]string) error {
		for name, value := range parameters {
			known := false
			for _, flag := range flags {
				known = known || flag == name
			}
			switch {
			case !known:
				return &refusal{name, name + ": unrecognized parameter"}
			case value == "bad":
				return &refusal{name, name + ": invalid"}
			case value == "mixed" && len(parameters) > 1:
				return &refusal{message: "they do not go together"}
			}
		}
		return nil
	}
}

func TestChoose(t *testing.T) {
	type set = map[string]string
	accepts := knowing("a", "b", "experimental-c", "unsafe-no-fsync")
	for name, c := range map[string]struct {
		declared, proven, want set
		refused                string
	}{
		"all are well":                      {set{"a": "1"}, nil, set{"a": "1"}, ""},
		"none":                              {nil, nil, set{}, ""},
		"a name that etcd does not know":    {set{"a": "1", "x": "2"}, nil, set{"a": "1"}, "x: unrecognized parameter"},
		"a value that it does not take":     {set{"a": "bad", "b": "2"}, nil, set{"b": "2"}, "a: invalid"},
		"a name of an earlier release":      {set{"experimental-a": "1"}, nil, set{"a": "1"}, ""},
		"a name of a later release":         {set{"c": "1"}, nil, set{"experimental-c": "1"}, ""},
		"a bad value of an earlier release": {set{"experimental-a": "bad"}, nil, set{}, "experimental-a: invalid"},
		"what Holdfast sets":                {set{"data-dir": "/x", "a": "1"}, nil, set{"a": "1"}, "data-dir: is set by Holdfast"},
		"what Holdfast sets, disguised":     {set{"experimental-unsafe-no-fsync": "true"}, nil, set{}, "experimental-unsafe-no-fsync: unrecognized parameter"},
		"dashes":                            {set{"--a": "1"}, nil, set{}, `"--a": a parameter is named without dashes`},
		"a mixture falls back to what worked": {
			set{"a": "mixed", "b": "2"}, set{"b": "3"}, set{"b": "3"}, "they do not go together"},
		"a mixture falls back to none when nothing has worked yet": {
			set{"a": "mixed", "b": "2"}, nil, set{}, "they do not go together"},
		"and when what worked is refused, too": {
			set{"a": "mixed", "b": "2"}, set{"a": "mixed", "b": "1"}, set{}, "they do not go together; they do not go together"},
	} {
		got, err := chooseParameters(c.declared, c.proven, accepts)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(choice{c.want, c.refused}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	away := errors.New("no process could be started")
	if _, err := chooseParameters(set{"a": "1"}, nil, func(set) error { return away }); !errors.Is(err, away) {
		t.Errorf("a check that could not be made: %v", err)
	}
	if _, err := chooseParameters(nil, nil, func(set) error { return &refusal{message: "the certificate"} }); err == nil {
		t.Error("settings that are refused without parameters, too")
	}
}

func TestParseVersion(t *testing.T) {
	version, r, err := parseVersion("etcd Version: 3.5.9\nGit SHA: bdbbde998\nGo Version: go1.19.9\n")
	if version != "3.5.9" || r != (release{3, 5}) || r.hasStableNames() || err != nil {
		t.Errorf("%s %v %v", version, r, err)
	}
	if _, _, err := parseVersion("sqlite 3\n"); err == nil || !strings.Contains(err.Error(), "sqlite 3") {
		t.Errorf("another program: %v", err)
	}
}
