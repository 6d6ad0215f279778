package image

import (
	"context"
	"os/exec"
	"strings"
)

// mirrors are the places that this machine gets Debian from, or nothing where
// its apt knows none.
type mirrors struct{ main, security string }

func machineMirrors(ctx context.Context) (mirrors, error) {
	out, err := exec.CommandContext(ctx, "apt-get", "indextargets",
		"--format", "$(ORIGIN)|$(RELEASE)|$(REPO_URI)", "Created-By: Packages").Output()
	if err != nil {
		return mirrors{}, err
	}
	return parseMirrors(string(out)), nil
}

// parseMirrors reads lines such as "Debian|bookworm-security|ADDRESS/".
func parseMirrors(targets string) mirrors {
	var m mirrors
	for line := range strings.Lines(targets) {
		fields := strings.SplitN(strings.TrimSpace(line), "|", 3)
		if len(fields) != 3 || fields[0] != "Debian" {
			continue
		}
		address := strings.TrimSuffix(fields[2], "/")
		switch release := fields[1]; {
		case strings.HasSuffix(release, "-security"):
			m.security = address
		case !strings.Contains(release, "-"):
			m.main = address
		}
	}
	return m
}
