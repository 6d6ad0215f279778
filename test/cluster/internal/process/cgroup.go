package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-db/holdfast/test/cluster/internal/layout"
)

const cgroupMount = "/sys/fs/cgroup"

// isUnified says whether the machine has cgroup v2 only.
func isUnified() bool {
	_, err := os.Stat(filepath.Join(cgroupMount, "cgroup.controllers"))
	return err == nil
}

// listHierarchies are the mounted trees that hold a folder per cgroup: one for
// version 2, one per controller for version 1.
func listHierarchies() ([]string, error) {
	if isUnified() {
		return []string{cgroupMount}, nil
	}
	entries, err := os.ReadDir(cgroupMount)
	if err != nil {
		return nil, err
	}
	var roots []string
	for _, e := range entries {
		root := filepath.Join(cgroupMount, e.Name())
		// "unified" has no controllers under version 1; links are aliases.
		if !e.IsDir() || e.Name() == "unified" {
			continue
		}
		if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err == nil {
			roots = append(roots, root)
		}
	}
	return roots, nil
}

// weights of the processor for the cluster as a whole, by the file that takes them: as
// eight processes beside it. Tests and builds on the machine would starve its members.
var weights = map[string]string{"cpu.shares": "8192", "cpu.weight": "800"}

// MakeCgroup makes the cgroup in every hierarchy.
func MakeCgroup(cgroup string) error {
	roots, err := listHierarchies()
	if err != nil {
		return err
	}
	for _, root := range roots {
		path := root
		for _, element := range strings.Split(strings.Trim(cgroup, "/"), "/") {
			if err := makeChild(path, element); err != nil {
				return err
			}
			path = filepath.Join(path, element)
		}
		if err := weighCluster(filepath.Join(root, layout.CgroupRoot)); err != nil {
			return err
		}
	}
	return nil
}

// weighCluster gives a cgroup its weight, in a hierarchy that has one.
func weighCluster(path string) error {
	for file, weight := range weights {
		if _, err := os.Stat(filepath.Join(path, file)); err != nil {
			continue
		}
		if err := os.WriteFile(filepath.Join(path, file), []byte(weight), 0o644); err != nil {
			return fmt.Errorf("weigh the cluster's cgroup: %w", err)
		}
	}
	return nil
}

// makeChild makes one cgroup under its parent and makes it usable: version 2
// must pass the controllers on, and version 1 leaves a new cpuset empty, which
// no process may join.
func makeChild(parent, name string) error {
	child := filepath.Join(parent, name)
	if isUnified() {
		controllers, err := os.ReadFile(filepath.Join(parent, "cgroup.controllers"))
		if err != nil {
			return err
		}
		for _, c := range strings.Fields(string(controllers)) {
			// A controller that cannot be passed on is one that no node needs here.
			_ = os.WriteFile(filepath.Join(parent, "cgroup.subtree_control"), []byte("+"+c), 0o644)
		}
	}
	if err := os.Mkdir(child, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make cgroup: %w", err)
	}
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		inherited, err := os.ReadFile(filepath.Join(parent, file))
		if err != nil || isUnified() {
			continue
		}
		if err := os.WriteFile(filepath.Join(child, file), inherited, 0o644); err != nil {
			return fmt.Errorf("fill %s: %w", file, err)
		}
	}
	return nil
}

// procsFiles are the files that a process joins the cgroup by.
func procsFiles(cgroup string) ([]string, error) {
	roots, err := listHierarchies()
	if err != nil {
		return nil, err
	}
	var files []string
	for _, root := range roots {
		files = append(files, filepath.Join(root, cgroup, "cgroup.procs"))
	}
	return files, nil
}

// membersHierarchy is the tree that membership is read from: every process is
// in each of them, so any one that is always there will do.
func membersHierarchy() string {
	if isUnified() {
		return cgroupMount
	}
	return filepath.Join(cgroupMount, "pids")
}

// ListMembers are the ids of all processes in the cgroup and below.
func ListMembers(cgroup string) []int {
	var pids []int
	top := filepath.Join(membersHierarchy(), cgroup)
	_ = filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Name() != "cgroup.procs" {
			return nil // a cgroup that went away has no members
		}
		content, _ := os.ReadFile(path)
		for _, field := range strings.Fields(string(content)) {
			if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
				pids = append(pids, pid)
			}
		}
		return nil
	})
	return pids
}

// KillCgroup kills everything in the cgroup and below, and waits until it is
// gone; children that were forked meanwhile are killed in the next round.
func KillCgroup(cgroup string) error {
	deadline := time.Now().Add(30 * time.Second)
	for {
		pids := ListMembers(cgroup)
		if len(pids) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d processes of %s outlive SIGKILL: %v", len(pids), cgroup, pids)
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// RemoveCgroup removes an empty cgroup and those below from every hierarchy.
func RemoveCgroup(cgroup string) error {
	roots, err := listHierarchies()
	if err != nil {
		return err
	}
	// Under version 1 the kubelet and runc leave empty folders there.
	roots = append(roots, filepath.Join(cgroupMount, "unified"))
	for _, root := range roots {
		if err := removeTree(filepath.Join(root, cgroup)); err != nil {
			return err
		}
	}
	return nil
}

func removeTree(path string) error {
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(path, e.Name())); err != nil {
				return err
			}
		}
	}
	// The kernel lets go of the last process a moment after it is gone.
	for attempt := 0; ; attempt++ {
		err := syscall.Rmdir(path)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if attempt == 100 {
			return fmt.Errorf("remove cgroup %s: %w", path, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// MemoryBytes is what the cgroup and those below hold, without page cache
// that could be dropped at any time.
func MemoryBytes(cgroup string) (int64, error) {
	path, key := filepath.Join(cgroupMount, "memory", cgroup, "memory.stat"), "total_rss"
	if isUnified() {
		path, key = filepath.Join(cgroupMount, cgroup, "memory.stat"), "anon"
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(content)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == key {
			return strconv.ParseInt(value, 10, 64)
		}
	}
	return 0, fmt.Errorf("%s has no %s", path, key)
}
