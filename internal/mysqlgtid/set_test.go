package mysqlgtid

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

const (
	a = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
	b = "8d90b0a2-1111-11e1-9e33-c80aa9429562"
)

func parse(t *testing.T, text string) Set {
	t.Helper()
	s, err := Parse(strings.NewReplacer("A", a, "B", b).Replace(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// write uses short names for the UUIDs.
func write(s Set) string {
	return strings.NewReplacer(a, "A", b, "B").Replace(s.String())
}

func TestParse(t *testing.T) {
	cases := []struct{ name, text, want string }{
		{"nothing", "", ""},
		{"one", "A:1", "A:1"},
		{"a range", "A:1-5", "A:1-5"},
		{"ranges out of order that touch", "A:7:1-5:6", "A:1-7"},
		{"ranges that overlap", "A:1-5:3-9:20", "A:1-9:20"},
		{"line breaks, as the server writes them", "A:1-5,\nB:2", "A:1-5,B:2"},
		{"spaces everywhere", " A : 1 - 5 : 7 , B : 2 ", "A:1-5:7,B:2"},
		{"empty parts", ",A:1,,B:2,", "A:1,B:2"},
		{"one server twice", "A:1,A:2", "A:1-2"},
		{"a tag", "A:1:tag:1-3:5", "A:1:tag:1-3:5"},
		{"a tag alone", "A:tag:1", "A:tag:1"},
		{"tags in any order and case", "A:zz:1:_x9:4:Zz:2", "A:_x9:4:zz:1-2"},
		{"a range that ends before it begins", "A:5-1:7", "A:7"},
		{"only such a range", "A:5-1", ""},
		{"the highest number", "A:9223372036854775806", "A:9223372036854775806"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := write(parse(t, c.text)); got != c.want {
				t.Errorf("got %s", got)
			}
		})
	}
	s, err := Parse(strings.ToUpper(a) + ":1")
	if err != nil || s.String() != a+":1" {
		t.Errorf("upper case: %s, %v", s, err)
	}
}

func TestWhatIsNoSet(t *testing.T) {
	for name, text := range map[string]string{
		"a UUID alone":       a,
		"a UUID and a colon": a + ":",
		"no UUID":            "1-5",
		"a short UUID":       "3e11fa47:1",
		"no hexadecimal":     "3e11fa47-71ca-11e1-9e33-c80aa942956g:1",
		"dashes elsewhere":   "3e11fa4-771ca-11e1-9e33-c80aa9429562:1",
		"zero":               a + ":0",
		"a range from zero":  a + ":0-5",
		"a negative number":  a + ":-5",
		"a sign":             a + ":+5",
		"half a range":       a + ":5-",
		"three ends":         a + ":1-2-3",
		"too high":           a + ":9223372036854775807",
		"far too high":       a + ":99999999999999999999",
		"a tag alone":        a + ":tag",
		"two tags":           a + ":one:two:1",
		"a long tag":         a + ":" + strings.Repeat("x", 33) + ":1",
		"a dash in a tag":    a + ":a-b:1",
		"text after it":      a + ":1 x",
	} {
		t.Run(name, func(t *testing.T) {
			if s, err := Parse(text); err == nil {
				t.Errorf("it was read as %q", s)
			}
		})
	}
}

func TestOperations(t *testing.T) {
	cases := []struct{ name, one, other, union, rest string }{
		{"equal", "A:1-5", "A:1-5", "A:1-5", ""},
		{"of two servers", "A:1-5", "B:1", "A:1-5,B:1", "A:1-5"},
		{"one contains the other", "A:1-9", "A:3-5", "A:1-9", "A:1-2:6-9"},
		{"contained", "A:3-5", "A:1-9", "A:1-9", ""},
		{"the tail", "A:1-9", "A:5-20", "A:1-20", "A:1-4"},
		{"the head", "A:5-20", "A:1-9", "A:1-20", "A:10-20"},
		{"several holes", "A:1-20", "A:2:4-5:20", "A:1-20", "A:1:3:6-19"},
		{"several of both", "A:1-3:10-12:20", "A:3:11", "A:1-3:10-12:20", "A:1-2:10:12:20"},
		{"they touch", "A:1-3", "A:4", "A:1-4", "A:1-3"},
		{"a tag is another source", "A:1-3", "A:x:1-3", "A:1-3:x:1-3", "A:1-3"},
		{"within a tag", "A:x:1-3", "A:x:2", "A:x:1-3", "A:x:1:3"},
		{"of nothing", "", "A:1", "A:1", ""},
		{"nothing of it", "A:1", "", "A:1", "A:1"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			one, other := parse(t, c.one), parse(t, c.other)
			if got := write(one.Union(other)); got != c.union {
				t.Errorf("the union is %s", got)
			}
			if got := write(one.Subtract(other)); got != c.rest {
				t.Errorf("the rest is %s", got)
			}
			if got := other.Contains(one); got != (c.rest == "") {
				t.Errorf("contains: %t", got)
			}
			if write(one) != write(parse(t, c.one)) || write(other) != write(parse(t, c.other)) {
				t.Error("an operation changed a set")
			}
		})
	}
}

func TestPartOfOneServer(t *testing.T) {
	s := parse(t, "A:1-3:x:4,B:2")
	if got := write(s.Only(strings.ToUpper(a))); got != "A:1-3:x:4" {
		t.Errorf("got %s", got)
	}
	if s.Count() != 5 || (Set{}).Count() != 0 || !(Set{}).IsEmpty() || s.IsEmpty() {
		t.Errorf("it counts %d", s.Count())
	}
	if got := parse(t, "A:1-9223372036854775806,B:1-9223372036854775806").Count(); got != 1<<63-1 {
		t.Errorf("it counts %d", got)
	}
	if !s.IsEqual(parse(t, "B:2,A:x:4,A:1-3")) || s.IsEqual(parse(t, "A:1-3:x:4")) {
		t.Error("equal sets differ, or others do not")
	}
}

// The operations agree with those on sets of single transactions.
func TestOperationsOfRandomSets(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	singles := map[string]Set{}
	for _, from := range []string{"A:", "B:", "A:t:"} {
		for n := 1; n <= 48; n++ {
			name := from + strconv.Itoa(n)
			singles[name] = parse(t, name)
		}
	}
	for range 500 {
		one, other := randomSet(t, random), randomSet(t, random)
		for name, c := range map[string]struct {
			got  Set
			want func(inOne, inOther bool) bool
		}{
			"union":    {one.Union(other), func(x, y bool) bool { return x || y }},
			"subtract": {one.Subtract(other), func(x, y bool) bool { return x && !y }},
		} {
			for transaction, single := range singles {
				if got, want := c.got.Contains(single), c.want(one.Contains(single), other.Contains(single)); got != want {
					t.Fatalf("%s of %s and %s is %s: %s", name, write(one), write(other), write(c.got), transaction)
				}
			}
			again := parse(t, c.got.String())
			if again.String() != c.got.String() || !again.IsEqual(c.got) {
				t.Fatalf("%s is written and read as %s", c.got, again)
			}
		}
	}
}

func randomSet(t *testing.T, random *rand.Rand) Set {
	t.Helper()
	return parse(t, randomText(random))
}

// randomText is a set as a person may write it.
func randomText(random *rand.Rand) string {
	var parts []string
	for range random.IntN(6) {
		first := 1 + random.IntN(40)
		last := first + random.IntN(8) - 1
		from := []string{"A:", "B:", "A:t:"}[random.IntN(3)]
		part := from + strconv.Itoa(first)
		if last > first {
			part += "-" + strconv.Itoa(last)
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ",")
}

func FuzzParse(f *testing.F) {
	f.Add(a + ":1-5:7:tag:1-3, " + b + ":2")
	f.Add("," + a + ":5-1")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err != nil {
			return
		}
		again, err := Parse(s.String())
		if err != nil || again.String() != s.String() {
			t.Errorf("%q is written as %q, which is read as %q, %v", text, s, again, err)
		}
		if !s.Subtract(s).IsEmpty() || !s.Contains(s) || s.Union(s).String() != s.String() {
			t.Errorf("%q is not itself", text)
		}
	})
}
