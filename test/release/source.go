package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// readSource asks Git for the commit of a tree.
func readSource(ctx context.Context, root string) (source, error) {
	commit, err := askGit(ctx, root, "rev-parse", "HEAD")
	if err != nil {
		return source{}, err
	}
	seconds, err := askGit(ctx, root, "log", "-1", "--format=%ct")
	if err != nil {
		return source{}, err
	}
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return source{}, fmt.Errorf("the commit's time: %w", err)
	}
	changes, err := askGit(ctx, root, "status", "--porcelain")
	if err != nil {
		return source{}, err
	}
	from := source{commit: commit, time: time.Unix(unix, 0).UTC()}
	for line := range strings.Lines(changes) {
		from.changes = append(from.changes, strings.TrimSpace(line))
	}
	return from, nil
}

// askGit runs Git in the tree.
func askGit(ctx context.Context, root string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", append([]string{"-C", root}, args...)...).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return "", fmt.Errorf("a release is made from a Git clone: git %s in %s: %w: %s", args[0], root, err, strings.TrimSpace(string(exit.Stderr)))
	}
	return strings.TrimSpace(string(out)), err
}
