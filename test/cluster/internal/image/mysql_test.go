package image

import "testing"

func TestMySQLVersion(t *testing.T) {
	cases := []struct{ name, version, want string }{
		{"a release", "9.7.4-1", "9.7.4"},
		{"a binary rebuild", "9.7.4-1+b2", "9.7.4"},
		{"an epoch", "1:8.4.11-0ubuntu1", "8.4.11"},
		{"a trailing newline", "9.7.4-1\n", "9.7.4"},
		{"another patch of two digits", "9.7.10-2", "9.7.10"},
		{"a release candidate", "10.0.0~rc1-1", ""},
		{"nothing", "", ""},
		{"no version", "mysql", ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := mysqlVersion(c.version)
			if got != c.want || (err == nil) != (c.want != "") {
				t.Errorf("got %q, %v, want %q", got, err, c.want)
			}
		})
	}
}
