package memberset

import "testing"

const older = "sha256:1111111111111111111111111111111111111111111111111111111111111111"

func TestSameRepository(t *testing.T) {
	for _, c := range []struct {
		imageID, image string
		want           bool
	}{
		{"docker.io/library/name@" + older, "name:17", true},
		{"docker.io/library/name@" + older, "docker.io/name:17", true},
		{"localhost:5000/db@" + older, "localhost:5000/db:17", true},
		{"docker.io/library/import-2026-06-03@" + older, "name:17", false},
		{"docker.io/name/name@" + older, "name:17", false},
		{older, "name:17", false},
		{"", "name:17", false},
	} {
		if got := sameRepository(c.imageID, c.image); got != c.want {
			t.Errorf("%s and %s: %v", c.imageID, c.image, got)
		}
	}
}
