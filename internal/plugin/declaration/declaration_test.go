package declaration

import "testing"

func TestImageRepository(t *testing.T) {
	for image, want := range map[string]string{
		"docker.io/library/postgres:17": "docker.io/library/postgres", "host:5000/postgres": "host:5000/postgres",
		"host:5000/postgres:17.5@sha256:abc": "host:5000/postgres", "": "",
	} {
		if got := imageRepository(image); got != want {
			t.Errorf("%q: %q, want %q", image, got, want)
		}
	}
}
