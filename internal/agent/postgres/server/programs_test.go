package server

import (
	"testing"
)

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
