package image

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestUpstreamVersion(t *testing.T) {
	cases := []struct {
		name, version string
		major         int
		want          string // empty: an error
	}{
		{"a stable release", "17.11-0+deb13u1", 17, "17.11"},
		{"a release in unstable", "18.4-1", 18, "18.4"},
		{"a binary rebuild", "18.4-1+b2", 18, "18.4"},
		{"an epoch", "1:15.18-0+deb12u1", 15, "15.18"},
		{"a native version", "15.18", 15, "15.18"},
		{"a trailing newline", "15.18-0+deb12u1\n", 15, "15.18"},
		{"another major", "17.11-0+deb13u1", 18, ""},
		{"a beta", "19~beta1-1", 19, ""},
		{"nothing", "", 15, ""},
		{"no version", "postgresql", 15, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := upstreamVersion(c.version, c.major)
			if got != c.want || (err == nil) != (c.want != "") {
				t.Errorf("got %q, %v, want %q", got, err, c.want)
			}
		})
	}
}

func TestTheNewestMinorIsTheMajorToo(t *testing.T) {
	images := withRefs([]postgres{
		{Major: 15, Version: "15.9"},
		{Major: 15, Version: "15.10"}, // ten is more than nine
		{Major: 17, Version: "17.12"},
		{Major: 17, Version: "17.11"},
	})
	var got [][]string
	for _, i := range images {
		got = append(got, i.Refs)
	}
	want := [][]string{
		{repository + ":15.9"},
		{repository + ":15.10", repository + ":15"},
		{repository + ":17.12", repository + ":17"},
		{repository + ":17.11"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestParseMirrors(t *testing.T) {
	const main, security = "http://mirror.example/debian", "http://mirror.example/security"
	cases := []struct {
		name, targets string
		want          mirrors
	}{
		{
			"a stable machine",
			"Debian|bookworm|" + main + "/\nDebian|bookworm-updates|http://elsewhere.example/\nDebian|bookworm-security|" + security + "/\n",
			mirrors{main, security},
		},
		{"a machine without security updates", "Debian|sid|" + main + "/\n", mirrors{main: main}},
		{"other vendors' packages", "Node Source|nodistro|http://node.example/\n", mirrors{}},
		{"nothing", "", mirrors{}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := parseMirrors(c.targets); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}
