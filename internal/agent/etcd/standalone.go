package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-db/holdfast/internal/agent/process"
	"github.com/holdfast-db/holdfast/internal/agent/volumelock"
)

const (
	// DataName is the data directory on a member's volume.
	DataName = dataName
	// ProofDir is the directory in it that holds member.RestoredFile: of one
	// beside this directory etcd would complain at every start.
	ProofDir = "member"
)

// ImageVersion is that of the etcd in the image, and where its programs are.
func ImageVersion(ctx context.Context) (version, dir string, err error) {
	if dir, err = findPrograms(); err != nil {
		return "", "", err
	}
	version, _, err = programs{process.Programs{Dir: dir, Processes: process.NewProcesses()}}.readVersion(ctx)
	return version, dir, err
}

// Standalone runs etcd once on the data of a group of one, which no client has
// reached yet, and none reaches now: it listens on the loopback interface only.
type Standalone struct {
	Programs        process.Programs
	Lock            *volumelock.VolumeLock
	Data            string
	Member, PeerURL string
	// ClientPort and PeerPort on the loopback interface.
	ClientPort, PeerPort int

	mu   sync.Mutex
	last logLine // that may be the reason of an end
}

// Found is what etcd says when it has started alone.
type Found struct {
	// Cluster is the group's ID in hex.
	Cluster  string
	Revision int64
	Members  int
	// Corrupt says that etcd has found its data inconsistent.
	Corrupt bool
}

// stopLimit is how long etcd may take to stop.
const stopLimit = time.Minute

// Inspect starts etcd, waits until it leads, asks what there is, and stops it in
// order.
func (a *Standalone) Inspect(ctx context.Context) (Found, error) {
	return a.inspectWith(ctx, func(context.Context, *clientv3.Client) error { return nil })
}

// inspectWith does as Inspect says, with one more question before etcd is stopped.
func (a *Standalone) inspectWith(ctx context.Context, also func(context.Context, *clientv3.Client) error) (Found, error) {
	at := func(port int) string { return "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
	server, err := a.Programs.Serve(a.Lock, a.readLogLine, "etcd", "--name="+a.Member, "--data-dir="+a.Data,
		"--listen-client-urls="+at(a.ClientPort), "--advertise-client-urls="+at(a.ClientPort), "--listen-peer-urls="+at(a.PeerPort),
		"--initial-advertise-peer-urls="+a.PeerURL, "--initial-cluster="+a.Member+"="+a.PeerURL,
		"--quota-backend-bytes=-1", "--logger=zap", "--log-outputs=stderr")
	if err != nil {
		return Found{}, err
	}
	defer func() { _ = server.Kill(syscall.SIGKILL) }()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{at(a.ClientPort)}, DialTimeout: time.Second, Logger: zap.NewNop()})
	if err != nil {
		return Found{}, fmt.Errorf("set up the client: %w", err)
	}
	defer client.Close() //nolint:errcheck // nothing is written through it
	status, err := a.awaitLeader(ctx, server, client)
	if err != nil {
		return Found{}, err
	}
	found := Found{
		Revision: status.Header.Revision,
		Corrupt:  strings.Contains(strings.Join(status.Errors, " "), "CORRUPT"),
	}
	asking, cancel := context.WithTimeout(ctx, dropLimit)
	defer cancel()
	if found.Cluster, found.Members, err = fetchPeerMembers(asking, at(a.PeerPort)); err != nil {
		return Found{}, fmt.Errorf("ask etcd for its members: %w", err)
	}
	if err := also(ctx, client); err != nil {
		return found, err
	}
	_ = server.Signal(syscall.SIGTERM)
	if !server.Ended(stopLimit) {
		return Found{}, errors.New("etcd does not stop")
	}
	return found, nil
}

// awaitLeader waits until etcd leads, as long as it takes to read its data.
func (a *Standalone) awaitLeader(ctx context.Context, server *process.Server, client *clientv3.Client) (*clientv3.StatusResponse, error) {
	for {
		asking, cancel := context.WithTimeout(ctx, time.Second)
		status, err := client.Status(asking, client.Endpoints()[0])
		if requiresLogin(err) {
			status, err = readOpenStatus(asking, client.Endpoints()[0])
		}
		cancel()
		if err == nil && isLeading(status) {
			return status, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-server.Done():
			a.mu.Lock()
			defer a.mu.Unlock()
			return nil, errors.New("etcd does not start on the restored data: " + a.last.String())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// readOpenStatus reads what etcd says of its status to any client: where its own
// authentication is on, it answers nothing else to one without a name.
func readOpenStatus(ctx context.Context, endpoint string) (*clientv3.StatusResponse, error) {
	families, err := readMetrics(ctx, endpoint+"/metrics")
	if err != nil {
		return nil, err
	}
	value := func(name string) float64 {
		for _, m := range families[name].GetMetric() {
			return max(m.GetGauge().GetValue(), m.GetCounter().GetValue())
		}
		return 0
	}
	_, health, err := fetchURL(ctx, endpoint+"/health")
	if err != nil {
		return nil, err
	}
	status := &clientv3.StatusResponse{
		Header: &etcdserverpb.ResponseHeader{Revision: int64(value("etcd_debugging_mvcc_current_revision")), MemberId: 1},
		Errors: []string{string(health)},
	}
	if value("etcd_server_is_leader") == 1 {
		status.Leader = status.Header.MemberId
	}
	return status, nil
}

// fetchPeerMembers asks for what a group says to joining members.
func fetchPeerMembers(ctx context.Context, peer string) (cluster string, members int, err error) {
	header, body, err := fetchURL(ctx, peer+"/members")
	if err != nil {
		return "", 0, err
	}
	var list []struct{}
	if err := json.Unmarshal(body, &list); err != nil {
		return "", 0, err
	}
	id, err := strconv.ParseUint(header.Get("X-Etcd-Cluster-Id"), 16, 64)
	return formatID(id), len(list), err
}

func fetchURL(ctx context.Context, url string) (http.Header, []byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return response.Header, body, err
}

func (a *Standalone) readLogLine(line string) {
	if parsed := parseLogLine(line); parsed.isReason() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.last = parsed
	}
}

// Soundness is what was found when all of the data was read.
type Soundness struct {
	Found
	// Closed says that etcd's own authentication is on: it answers no client that
	// has no password. Nothing else is set then.
	Closed bool
	// Keys that were read with their values, and the Size of both in bytes.
	Keys, Size int64
	// Hash of all revisions that are there.
	Hash uint32
}

const (
	// pageKeys are read at once: values have 1.5 MiB at most, by default.
	pageKeys = 100
	// pageLimit is how long one page may take.
	pageLimit = time.Minute
	// hashLimit is how long etcd may take to read all revisions.
	hashLimit = 30 * time.Minute
)

// ReadAll starts etcd as Inspect does, and has it read everything: every revision for
// its hash, and every key through the interface that clients use.
func (a *Standalone) ReadAll(ctx context.Context) (Soundness, error) {
	var s Soundness
	found, err := a.inspectWith(ctx, func(ctx context.Context, client *clientv3.Client) error {
		hashing, cancel := context.WithTimeout(ctx, hashLimit)
		defer cancel()
		hash, err := client.HashKV(hashing, client.Endpoints()[0], 0)
		if requiresLogin(err) {
			s.Closed = true
			return nil
		}
		if err != nil {
			return fmt.Errorf("have etcd read all revisions: %w", err)
		}
		s.Hash = hash.Hash
		return s.readKeys(ctx, client)
	})
	s.Found = found
	return s, err
}

func requiresLogin(err error) bool {
	for _, refusal := range []error{rpctypes.ErrUserEmpty, rpctypes.ErrPermissionDenied, rpctypes.ErrPermissionNotGranted} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return false
}

// readKeys reads all keys of one revision, page by page.
func (s *Soundness) readKeys(ctx context.Context, client *clientv3.Client) error {
	from, revision, counted := "\x00", int64(0), int64(0)
	for {
		page, cancel := context.WithTimeout(ctx, pageLimit)
		got, err := client.Get(page, from, clientv3.WithFromKey(), clientv3.WithLimit(pageKeys), clientv3.WithRev(revision))
		cancel()
		if requiresLogin(err) {
			s.Closed = true
			return nil
		}
		if err != nil {
			return fmt.Errorf("read all keys, %d so far: %w", s.Keys, err)
		}
		if revision == 0 {
			revision, counted = got.Header.Revision, got.Count
		}
		for _, kv := range got.Kvs {
			s.Keys++
			s.Size += int64(len(kv.Key) + len(kv.Value))
		}
		if !got.More {
			break
		}
		from = string(got.Kvs[len(got.Kvs)-1].Key) + "\x00"
	}
	if s.Keys != counted {
		return fmt.Errorf("etcd counts %d keys, and gives %d", counted, s.Keys)
	}
	return nil
}
