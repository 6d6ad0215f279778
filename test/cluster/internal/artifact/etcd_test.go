package artifact

import "testing"

func TestNewestOfLine(t *testing.T) {
	all := func(versions ...string) map[string][]string {
		return map[string][]string{"etcd": versions, "etcdctl": versions, "etcdutl": versions}
	}
	cases := []struct {
		name    string
		offered map[string][]string
		want    string
	}{
		{"the last of the line", all("v3.5.9", "v3.5.10", "v3.6.0", "v3.6.11", "v3.7.0"), "3.6.11"},
		{"no release candidate", all("v3.6.0-rc.1"), ""},
		{"no line whose name begins alike", all("v3.60.1"), ""},
		{"none", all("v3.5.9"), ""},
		{"one that every program has", map[string][]string{
			"etcd": {"v3.6.1", "v3.6.2", "v3.6.3"}, "etcdctl": {"v3.6.1", "v3.6.2"}, "etcdutl": {"v3.6.1", "v3.6.2", "v3.6.3"},
		}, "3.6.2"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := newestOfLine("3.6", c.offered); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
