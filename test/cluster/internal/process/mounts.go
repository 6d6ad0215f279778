package process

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

// UnmountUnder unmounts everything below the folders, the newest first.
func UnmountUnder(folders ...string) error {
	content, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	points := mountsUnder(string(content), folders)
	for i := len(points) - 1; i >= 0; i-- {
		if err := syscall.Unmount(points[i], syscall.MNT_DETACH); err != nil && err != syscall.EINVAL {
			return fmt.Errorf("unmount %s: %w", points[i], err)
		}
	}
	return nil
}

// mountsUnder are the mount points below the folders in the order of mounting.
func mountsUnder(mountinfo string, folders []string) []string {
	var points []string
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		point := unescape.Replace(fields[4])
		for _, folder := range folders {
			if strings.HasPrefix(point, strings.TrimSuffix(folder, "/")+"/") {
				points = append(points, point)
				break
			}
		}
	}
	return points
}

// unescape undoes the octal escapes of mountinfo.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
