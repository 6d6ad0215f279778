package agent

import (
	"os"
	"path/filepath"
	"testing"
)

func TestInstall(t *testing.T) {
	dir := t.TempDir()
	source, destination := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	for _, text := range []string{"one", "two"} {
		if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := installBinary(source, destination); err != nil {
			t.Fatal(err)
		}
		data, _ := os.ReadFile(destination)
		info, _ := os.Stat(destination)
		if string(data) != text || info.Mode().Perm() != 0o755 {
			t.Errorf("installed %q with mode %v", data, info.Mode())
		}
	}
	if err := installBinary(filepath.Join(dir, "missing"), destination); err == nil {
		t.Error("a missing binary was installed")
	}
}
