//go:build mysql

// These tests compare with the functions of a real server. HOLDFAST_MYSQL names the folder
// of MySQL's programs.
package mysqlgtid_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/holdfast-db/holdfast/internal/agent/mysql/mysqltest"
	"github.com/holdfast-db/holdfast/internal/mysqlgtid"
)

var uuids = []string{"3e11fa47-71ca-11e1-9e33-c80aa9429562", "8d90b0a2-1111-11e1-9e33-c80aa9429562", "8D90B0A2-1111-11E1-9E33-C80AA9429563"}

// randomText is a set as a person may write it, or nearly.
func randomText(random *rand.Rand) string {
	pick := func(texts ...string) string { return texts[random.IntN(len(texts))] }
	var b strings.Builder
	for i := range random.IntN(4) {
		if i > 0 {
			b.WriteString(pick(",", ", ", ",\n", ",,", " , "))
		}
		b.WriteString(uuids[random.IntN(len(uuids))])
		for range 1 + random.IntN(4) {
			b.WriteString(pick(":", ":", ":", " : "))
			first := 1 + random.IntN(30)
			switch random.IntN(24) {
			case 0:
				b.WriteString(pick("0", "x y", "1-2-3", "-4", "9223372036854775807", "tag-1", "é", "", "9x", strings.Repeat("t", 33)))
			case 1, 2, 3, 4:
				b.WriteString(pick("tag", "Tag", "_a1", "b", strings.Repeat("t", 32)))
			case 5, 6, 7, 8, 9, 10:
				fmt.Fprintf(&b, "%d", first)
			case 11:
				b.WriteString(pick("9223372036854775806", "1-9223372036854775806", "007"))
			default:
				fmt.Fprintf(&b, "%d%s%d", first, pick("-", " - "), first+random.IntN(10)-2)
			}
		}
	}
	return b.String()
}

// Whatever is read means the same to MySQL, and what is not read MySQL does not read, but
// for tags without numbers.
func TestRealServerAgrees(t *testing.T) {
	m := mysqltest.NewMembers(t, 1)[0]
	m.JoinGroupNamed(uuids[0])
	if err := m.Bootstrap(); err != nil {
		t.Fatal(err)
	}
	m.Start()
	ask := func(function, one, other string) (string, error) {
		var text string
		err := m.DB.QueryRowContext(t.Context(), "SELECT "+function+"(?, ?)", one, other).Scan(&text)
		return strings.ReplaceAll(text, "\n", ""), err
	}
	random := rand.New(rand.NewPCG(3, 4))
	read, refused := 0, 0
	last := mysqlgtid.Set{}
	for range 4000 {
		text := randomText(random)
		set, err := mysqlgtid.Parse(text)
		theirs, theirErr := ask("GTID_SUBTRACT", text, "")
		stricter := err != nil && strings.Contains(err.Error(), "has no numbers")
		if (err == nil) != (theirErr == nil) && !stricter {
			t.Fatalf("%q: %v, and MySQL says %v", text, err, theirErr)
		}
		if err != nil {
			refused++
			continue
		}
		read++
		if set.String() != theirs {
			t.Fatalf("%q is %q, and MySQL says %q", text, set, theirs)
		}
		if rest, err := ask("GTID_SUBTRACT", text, last.String()); err != nil || rest != set.Subtract(last).String() {
			t.Fatalf("%s without %s is %s, and MySQL says %s, %v", set, last, set.Subtract(last), rest, err)
		}
		if is, err := ask("GTID_SUBSET", last.String(), text); err != nil || (is == "1") != set.Contains(last) {
			t.Fatalf("%s in %s: %t, and MySQL says %s, %v", last, set, set.Contains(last), is, err)
		}
		if union, err := ask("GTID_SUBTRACT", text+","+last.String(), ""); err != nil || union != set.Union(last).String() {
			t.Fatalf("%s and %s are %s, and MySQL says %s, %v", set, last, set.Union(last), union, err)
		}
		last = set
	}
	if read < 1000 || refused < 200 {
		t.Errorf("%d were read, and %d refused", read, refused)
	}
}
