package server

import "testing"

func TestParseVersion(t *testing.T) {
	cases := []struct{ name, out, text, version string }{
		{"the official image's", "/usr/sbin/mysqld  Ver 9.7.4 for Linux on x86_64 (MySQL Community Server - GPL)\n", "9.7.4", "9.7.4"},
		{"a distribution's", "mysqld  Ver 9.7.4-2 for debian-linux-gnu on x86_64 (Debian)\n", "9.7.4-2", "9.7.4"},
		{"MariaDB", "mysqld  Ver 11.8.2-MariaDB for debian-linux-gnu\n", "11.8.2-MariaDB", "11.8.2"},
		{"nothing", "", "", ""},
		{"another program", "mysql from somewhere", "", ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			text, version, err := parseVersion(c.out)
			if text != c.text || err == nil && version.String() != c.version || (err == nil) != (c.version != "") {
				t.Errorf("%q, %s, %v", text, version, err)
			}
		})
	}
}
