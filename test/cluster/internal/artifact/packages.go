package artifact

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// packages are what a node needs from Debian, by the program that shows that
// it is there already.
var packages = map[string]string{
	"containerd":       "containerd",
	"runc":             "runc",
	"nft":              "nftables",
	"iptables":         "iptables",
	"conntrack":        "conntrack",
	"debootstrap":      "debootstrap",
	"ip":               "iproute2",
	"nsenter":          "util-linux",
	"mount":            "mount",
	"/usr/lib/cni/ptp": "containernetworking-plugins",
	"/usr/share/keyrings/debian-archive-keyring.gpg": "debian-archive-keyring",
}

const remedy = "the local cluster needs root on a Debian machine; with KUBECONFIG set, any other cluster does as well"

// EnsurePackages installs the Debian packages that are not there.
func EnsurePackages(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return errors.New(remedy)
	}
	unlock, err := lockPackages()
	if err != nil {
		return err
	}
	defer unlock()
	missing := missingPackages()
	if len(missing) == 0 {
		return nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("%s (not found: %s)", remedy, strings.Join(missing, ", "))
	}
	return RunTimed("installing "+strings.Join(missing, ", "), func() error {
		if err := runAptGet(ctx, "update", "-qq"); err != nil {
			return err
		}
		return runAptGet(ctx, append([]string{"install", "-qq", "--yes", "--no-install-recommends"}, missing...)...)
	})
}

// packagesLock keeps commands that run side by side from installing at once:
// apt-get does not wait for another.
const packagesLock = "/run/holdfast-packages.lock"

func lockPackages() (unlock func(), err error) {
	file, err := os.OpenFile(packagesLock, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		file.Close()
		return nil, fmt.Errorf("lock %s: %w", packagesLock, err)
	}
	return func() { file.Close() }, nil
}

func missingPackages() []string {
	var missing []string
	for program, name := range packages {
		_, err := exec.LookPath(program)
		if strings.HasPrefix(program, "/") {
			_, err = os.Stat(program)
		}
		if err != nil {
			missing = append(missing, name)
		}
	}
	return missing
}

// runAptGet runs apt-get; a service that a package brings is not started, since the
// cluster runs its own copies.
func runAptGet(ctx context.Context, arguments ...string) error {
	command := exec.CommandContext(ctx, "apt-get", arguments...)
	command.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1")
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("apt-get %s: %w: %s", arguments[0], err, out)
	}
	return nil
}
