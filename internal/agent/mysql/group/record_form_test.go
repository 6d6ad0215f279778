package group

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRecordIsWrittenAndRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "group.json")
	if r, err := LoadRecord(path); err != nil || !r.IsEqual(Record{}) {
		t.Errorf("%+v, %v", r, err)
	}
	for _, want := range []Record{
		{Group: simulatedGroup},
		recorded(0, 1, 2).WithJoining(uuidOf(3), "a-3"),
		recorded(0).WithClaim(uuidOf(0)).WithClaim(uuidOf(0)),
		recorded(0).Next().Next(),
		recorded(0, 1).WithForcedClaim(detached(0, ""), []string{uuidOf(0)}, secondName).Next(),
	} {
		text, err := FormatRecord(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseRecord(text)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", text, err, diff)
		}
		if err := SaveRecord(path, want); err != nil {
			t.Fatal(err)
		}
		got, err = LoadRecord(path)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("on the volume: %v\n%s", err, diff)
		}
	}
	if r, err := ParseRecord(""); err != nil || !r.IsEqual(Record{}) {
		t.Errorf("of nothing: %+v, %v", r, err)
	}
}

func TestContradictoryRecordsAreNotRead(t *testing.T) {
	for name, text := range map[string]string{
		"half a record":             `{"format":1,"group":"g"`,
		"no format":                 `{"group":"g"}`,
		"no group":                  `{"format":1}`,
		"a member twice":            `{"format":1,"group":"g","members":[{"serverUUID":"a"},{"serverUUID":"a"}]}`,
		"a member without a UUID":   `{"format":1,"group":"g","members":[{"pod":"a-0"}]}`,
		"a UUID in upper case":      `{"format":1,"group":"g","members":[{"serverUUID":"A"}]}`,
		"a term of no member":       `{"format":1,"group":"g","bootTerm":3}`,
		"a member that has no term": `{"format":1,"group":"g","bootMember":"a"}`,
		"a lineage without a name":  `{"format":2,"group":"g","lineage":1}`,
		"a name of no lineage":      `{"format":2,"group":"g","replicationName":"n"}`,
		"a negative revision":       `{"format":1,"group":"g","revision":-1}`,
	} {
		t.Run(name, func(t *testing.T) {
			if r, err := ParseRecord(text); err == nil {
				t.Errorf("%+v", r)
			}
		})
	}
}

func TestRecordOfANewerAgentStays(t *testing.T) {
	const newer = `{"format":3,"group":"g","members":[{"serverUUID":"a","votes":2}]}`
	if _, err := ParseRecord(newer); !errors.Is(err, ErrRecordFormat) {
		t.Errorf("%v", err)
	}
	path := filepath.Join(t.TempDir(), "group.json")
	if err := os.WriteFile(path, []byte(newer), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := SaveRecord(path, recorded(0)); !errors.Is(err, ErrRecordFormat) {
		t.Errorf("%v", err)
	}
	if content, _ := os.ReadFile(path); string(content) != newer {
		t.Errorf("it is %s", content)
	}
}

// An agent that knows no lineage must not write a record again without it. All other records
// stay readable for it.
func TestFormatIsTheLowestThatHoldsTheRecord(t *testing.T) {
	plain, err := FormatRecord(recorded(0).Next())
	if err != nil || !strings.Contains(plain, `"format":1,`) {
		t.Errorf("%s, %v", plain, err)
	}
	forked, err := FormatRecord(recorded(0).WithForcedClaim(detached(0, ""), nil, secondName))
	if err != nil || !strings.Contains(forked, `"format":2,`) {
		t.Errorf("%s, %v", forked, err)
	}
}
