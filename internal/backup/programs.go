package backup

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// FindPostgres finds the directory of PostgreSQL's programs, some of which are needed: beside
// postgres, which is on the path or in Debian's place. What the path itself has of their
// names may be Debian's wrapper, a script that looks for servers of its own.
func FindPostgres(needed ...string) (string, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if server, err := exec.LookPath("postgres"); err == nil {
		found = []string{server}
	}
	if len(found) == 1 {
		if server, err := filepath.EvalSymlinks(found[0]); err == nil && hasPrograms(filepath.Dir(server), needed) {
			return filepath.Dir(server), nil
		}
	}
	return "", &Permanent{Err: fmt.Errorf("the image holds no PostgreSQL with %s, or several: postgres must be on the path", strings.Join(needed, " and "))}
}

func hasPrograms(dir string, names []string) bool {
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return false
		}
	}
	return true
}
