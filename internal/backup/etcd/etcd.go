// Package etcd copies etcd as a snapshot of one member, and knows a good one.
package etcd

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/backup"
)

// Source is the members of a cluster.
type Source struct {
	TLS *tls.Config
	// Cluster is the ID of the only cluster to copy, in hex; empty for any.
	Cluster string
	// Program reads snapshots: etcdutl.
	Program string
	// Scratch is a directory with disk space for one.
	Scratch string

	// revision that the group had when the copy began.
	revision int64
}

// New is the source of a task, in its pod.
func New(task agentapi.BackupTask) (backup.Source, error) {
	id, err := backup.ReadIdentity()
	if err != nil {
		return nil, err
	}
	config, err := id.TLSConfig()
	if err != nil {
		return nil, err
	}
	program, err := findProgram()
	if err != nil {
		return nil, err
	}
	return &Source{TLS: config, Cluster: task.SystemIdentifier, Program: program, Scratch: agentapi.RunDir}, nil
}

// findProgram looks for etcdutl on the path, and where etcd's image has it.
func findProgram() (string, error) {
	if path, err := exec.LookPath("etcdutl"); err == nil {
		return path, nil
	}
	const path = "/usr/local/bin/etcdutl"
	if _, err := os.Stat(path); err != nil {
		return "", &backup.Permanent{Err: errors.New("the image holds no etcdutl, by which a snapshot is checked: it must be on the path")}
	}
	return path, nil
}

const (
	// dialTimeout is for a member that is there, or is not, and for its answers.
	dialTimeout = 10 * time.Second
	// keepalive is after what silence, and for how long, a member is asked
	// whether it is still there. etcd refuses to be asked more often than each
	// five seconds.
	keepalive = 10 * time.Second
)

// CopyMember implements backup.Source: a snapshot as etcd streams it, the data file
// with its SHA-256 behind it. All of it is fetched and read before any goes on:
// while a member streams, what it no longer needs is not used again, and its
// file grows, so it must not wait for a store.
func (s *Source) CopyMember(ctx context.Context, member agentapi.BackupSource, to io.Writer) (backup.Facts, error) {
	c, err := clientv3.New(clientv3.Config{
		Context: ctx, Endpoints: []string{"https://" + member.Address}, DialTimeout: dialTimeout, TLS: s.TLS, Logger: zap.NewNop(),
		DialKeepAliveTime: keepalive, DialKeepAliveTimeout: keepalive,
	})
	if err != nil {
		return backup.Facts{}, fmt.Errorf("reach etcd: %w", err)
	}
	defer c.Close() //nolint:errcheck // nothing is written through it
	facts, err := s.checkFit(ctx, c)
	if err != nil {
		return backup.Facts{}, fmt.Errorf("etcd at %s: %w", member.Address, markPermanent(err))
	}
	file, err := os.CreateTemp(s.Scratch, "snapshot-*.db")
	if err != nil {
		return backup.Facts{}, fmt.Errorf("prepare disk space for the snapshot: %w", err)
	}
	defer os.Remove(file.Name()) //nolint:errcheck // it goes with the pod
	defer file.Close()
	if err := fetchSnapshot(ctx, c, file); err != nil {
		return backup.Facts{}, err
	}
	if _, err := s.inspectSnapshot(ctx, file.Name()); err != nil {
		return backup.Facts{}, err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return backup.Facts{}, fmt.Errorf("read the snapshot: %w", err)
	}
	if _, err := io.Copy(to, file); err != nil {
		return backup.Facts{}, fmt.Errorf("store the snapshot: %w", err)
	}
	return facts, nil
}

// checkFit refuses a member whose data is not the cluster's: it never was, is not
// yet, or is not any more. What it has must reach what the group has now.
func (s *Source) checkFit(ctx context.Context, c *clientv3.Client) (facts backup.Facts, err error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	status, err := c.Status(ctx, c.Endpoints()[0])
	if err != nil {
		return facts, err
	}
	facts = backup.Facts{Version: status.Version, SystemIdentifier: strconv.FormatUint(status.Header.ClusterId, 16)}
	switch {
	case s.Cluster != "" && facts.SystemIdentifier != s.Cluster:
		return facts, &backup.Permanent{Err: fmt.Errorf("it is of the cluster %s, and %s is to be copied", facts.SystemIdentifier, s.Cluster)}
	case status.IsLearner:
		return facts, errors.New("it has no vote yet, and may not have all data")
	case status.Leader == 0:
		return facts, errors.New("it knows no leader, and may lack what the others have")
	}
	alarms, err := c.AlarmList(ctx)
	if err != nil {
		return facts, err
	}
	for _, a := range alarms.Alarms {
		if a.Alarm == etcdserverpb.AlarmType_CORRUPT && a.MemberID == status.Header.MemberId {
			return facts, errors.New("it holds other data than the rest: etcd has raised the alarm CORRUPT")
		}
	}
	now, err := c.Get(ctx, "\x00", clientv3.WithCountOnly()) // linearizable: the group must agree
	if err != nil {
		return facts, fmt.Errorf("ask the group for its revision: %w", err)
	}
	s.revision = now.Header.Revision
	return facts, nil
}

// fetchSnapshot fetches a whole snapshot.
func fetchSnapshot(ctx context.Context, c *clientv3.Client, file *os.File) error {
	sum := &trailed{hash: sha256.New()}
	watched, to, stop := backup.Watch(ctx, io.MultiWriter(file, sum))
	defer stop()
	snapshot, err := c.SnapshotWithVersion(watched)
	if err != nil {
		return fmt.Errorf("ask for a snapshot: %w", markPermanent(err))
	}
	defer snapshot.Snapshot.Close()
	if _, err := io.Copy(to, snapshot.Snapshot); err != nil {
		if watched.Err() != nil {
			err = context.Cause(watched)
		}
		return fmt.Errorf("copy the snapshot: %w", err)
	}
	return sum.checkSum()
}

// markPermanent marks what etcd will answer again.
func markPermanent(err error) error {
	if errors.Is(err, rpctypes.ErrPermissionDenied) || errors.Is(err, rpctypes.ErrUserEmpty) {
		return &backup.Permanent{Err: fmt.Errorf("%w: etcd's authentication is on, and a snapshot takes the role root: grant it to the user app, whose certificate backups log in by", err)}
	}
	return err
}

// VerifyCopy implements backup.Source.
func (s *Source) VerifyCopy(ctx context.Context, from io.Reader) (backup.Facts, error) {
	file, err := os.CreateTemp(s.Scratch, "snapshot-*.db")
	if err != nil {
		return backup.Facts{}, fmt.Errorf("prepare disk space to verify: %w", err)
	}
	defer os.Remove(file.Name()) //nolint:errcheck // it goes with the pod
	defer file.Close()
	data := &trailed{hash: sha256.New()}
	if _, err := io.Copy(io.MultiWriter(file, data), from); err != nil {
		return backup.Facts{}, err
	}
	if err := data.checkSum(); err != nil {
		return backup.Facts{}, &backup.Permanent{Err: err}
	}
	if err := file.Close(); err != nil {
		return backup.Facts{}, fmt.Errorf("write the snapshot: %w", err)
	}
	return s.inspectSnapshot(ctx, file.Name())
}

// inspectSnapshot has etcd's own program read a snapshot, all of it.
func (s *Source) inspectSnapshot(ctx context.Context, file string) (backup.Facts, error) {
	cmd := exec.CommandContext(ctx, s.Program, "snapshot", "status", filepath.Clean(file), "--write-out=json")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return backup.Facts{}, backup.ExplainRefusal(ctx, "etcdutl", err, stderr.String())
	}
	if !json.Valid(out) {
		return backup.Facts{}, &backup.Permanent{Err: fmt.Errorf("etcdutl says of the snapshot: %q", cmp.Or(string(out), "nothing"))}
	}
	revision, err := revisionOf(file)
	if err != nil {
		return backup.Facts{}, &backup.Permanent{Err: err}
	}
	if revision < s.revision {
		return backup.Facts{}, fmt.Errorf("the snapshot has the revision %d, and the group had %d before it was begun", revision, s.revision)
	}
	return backup.Facts{End: strconv.FormatInt(revision, 10)}, nil
}

// trailed reads a stream that ends with the SHA-256 of what stands before it.
type trailed struct {
	hash hash.Hash
	tail []byte
}

// Write implements io.Writer.
func (t *trailed) Write(p []byte) (int, error) {
	t.tail = append(t.tail, p...)
	if known := len(t.tail) - sha256.Size; known > 0 {
		t.hash.Write(t.tail[:known])
		t.tail = append(t.tail[:0], t.tail[known:]...)
	}
	return len(p), nil
}

func (t *trailed) checkSum() error {
	if len(t.tail) < sha256.Size {
		return fmt.Errorf("the snapshot ends after %d bytes", len(t.tail))
	}
	if sum := t.hash.Sum(nil); !bytes.Equal(sum, t.tail) {
		return fmt.Errorf("the snapshot has the SHA-256 %x, and says %x", sum, t.tail)
	}
	return nil
}
