package settings

import (
	"testing"
)

func TestRefusedSettings(t *testing.T) {
	cases := []struct{ name, stderr, want string }{
		{"an unknown parameter is named",
			"2026-01-01 00:00:00.000 GMT [7] LOG:  unrecognized configuration parameter \"max_connectionz\" in file \"/run/holdfast/candidate.conf\" line 3\n2026-01-01 00:00:00.000 GMT [7] FATAL:  configuration file \"/run/holdfast/candidate.conf\" contains errors\n",
			"max_connectionz: unrecognized configuration parameter"},
		{"an invalid value is named",
			"LOG:  invalid value for parameter \"shared_buffers\": \"abc\"\nFATAL:  configuration file \"x\" contains errors\n",
			"shared_buffers: invalid value: \"abc\""},
		{"a value out of range is named",
			"LOG:  0 is outside the valid range for parameter \"max_connections\" (1 .. 262143)\n",
			"max_connections: 0 is outside the valid range (1 .. 262143)"},
		{"anything else is passed on", "cannot execute\n", "cannot execute"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := DescribeRefusal(c.stderr); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
