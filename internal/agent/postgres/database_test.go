package postgres

import (
	"strings"
	"testing"
)

func TestInitdbLocale(t *testing.T) {
	for major, want := range map[int]string{15: "--locale=C.UTF-8", 17: "--builtin-locale=C.UTF-8", 18: "--builtin-locale=C.UTF-8"} {
		if args := strings.Join(initdbArgs("x", major), " "); !strings.Contains(args, want) || strings.Contains(args, "builtin") != (major >= 17) {
			t.Errorf("%d: %s", major, args)
		}
	}
}
