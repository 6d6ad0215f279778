//go:build bench

package overhead

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/etcdapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
)

const (
	// user and group that the databases run as, in the file tree too.
	user = 999
	// memoryLimit of the container, from which the settings are computed.
	memoryLimit = 1 << 30
	appPassword = "s3cret"
	// serverPort is PostgreSQL's beside an agent.
	serverPort = 5432
)

// tree is the file tree that programs run in.
func tree(path ...string) string {
	return filepath.Join(append([]string{os.Getenv("HOLDFAST_TREE")}, path...)...)
}

// agentProgram is that of a build, now or before, in the tree.
func agentProgram(build string) string { return "/opt/holdfast/" + build + "/holdfast" }

// member is an agent with its database.
type member struct {
	t      *testing.T
	plane  *plane
	kind   string // as the command has it
	build  string
	config agentapi.ClusterConfig
	cmd    *exec.Cmd
	// began is when the agent began to run.
	began time.Time
	log   string
}

func newMember(t *testing.T, p *plane, kind, build string) *member {
	t.Helper()
	m := &member{t: t, plane: p, kind: kind, build: build, log: tree("srv", "agent.log")}
	m.config = agentapi.ClusterConfig{
		APIVersion: "holdfast.dev/v1alpha1", Kind: map[string]string{"postgres": "PostgresCluster", "mysql": "MySQLCluster", "etcd": "EtcdCluster"}[kind],
		Namespace: namespace, Name: cluster, UID: "u", Fresh: true, Members: []string{podName}, VolumeSize: 8 << 30,
	}
	if kind == "etcd" {
		m.config.JoinGrants = map[string]etcdapi.JoinGrant{podName: {
			MemberID: etcdapi.SeedMember, State: etcdapi.JoinNew, InitialCluster: map[string]string{podName: "https://" + net.JoinHostPort(host, "2380")},
		}}
	} else {
		m.config.FirstDatabase = postgresapi.FirstDatabase{Database: "app", Owner: "app"}
	}
	p.forgetCluster(t)
	for _, dir := range []string{agentapi.DataDir, agentapi.RunDir} {
		if err := os.RemoveAll(tree(dir)); err != nil {
			t.Fatal(err)
		}
		m.makeDirectory(dir)
	}
	for path, content := range map[string][]byte{
		agentapi.TLSDir + "/tls.crt": p.certificate, agentapi.TLSDir + "/tls.key": p.key, agentapi.TLSDir + "/ca.crt": p.certificate,
		agentapi.CredentialsDir + "/app-password":          []byte(appPassword),
		"/run/secrets/kubernetes.io/serviceaccount/token":  p.token,
		"/run/secrets/kubernetes.io/serviceaccount/ca.crt": p.authority,
		"/etc/hosts": []byte("127.0.0.1 localhost " + host + "\n"),
	} {
		m.makeDirectory(filepath.Dir(path))
		if err := os.WriteFile(tree(path), content, 0o644); err != nil { //nolint:gosec // read by the database's user
			t.Fatal(err)
		}
	}
	return m
}

func (m *member) makeDirectory(path string) {
	m.t.Helper()
	if err := os.MkdirAll(tree(path), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if strings.HasPrefix(path, "/etc/holdfast") || path == agentapi.DataDir || path == agentapi.RunDir {
		if err := os.Chown(tree(path), user, user); err != nil {
			m.t.Fatal(err)
		}
	}
}

// command is a program in the tree, as the user of the databases.
func command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Path, cmd.Err = name, nil // as it is called in the tree
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + os.Getenv("HOLDFAST_TREE_PATH") + ":/opt/mysql/bin:/opt/etcd:/usr/bin:/bin", "HOME=/tmp", "LANG=C.UTF-8"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: tree(), Credential: &syscall.Credential{Uid: user, Gid: user}}
	return cmd
}

// start runs the agent as its container does, until the member serves.
func (m *member) start() {
	m.t.Helper()
	m.plane.configure(m.t, m.config)
	uid := m.plane.makePod(m.t)
	log := m.openLog(m.log)
	defer log.Close()
	m.cmd = command(agentProgram(m.build), "agent", m.kind)
	m.cmd.Stdout, m.cmd.Stderr = log, log
	m.cmd.Env = append(m.cmd.Env, "KUBERNETES_SERVICE_HOST="+m.plane.host, "KUBERNETES_SERVICE_PORT="+m.plane.port,
		agentapi.EnvNamespace+"="+namespace, agentapi.EnvCluster+"="+cluster, agentapi.EnvPodName+"="+podName, agentapi.EnvPodUID+"="+uid,
		agentapi.EnvPodIP+"=127.0.0.1", fmt.Sprintf("%s=%d", agentapi.EnvMemoryLimit, memoryLimit), agentapi.EnvCPULimit+"=2")
	m.began = time.Now()
	if err := m.cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(m.stop)
	m.await("a ready member", func(context.Context) error { return m.ask("/readyz") })
}

// openLog is what a container's program writes to: a pipe, which another program empties into
// a file, as a container runtime does.
func (m *member) openLog(path string) *os.File {
	m.t.Helper()
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_APPEND|os.O_WRONLY, 0o644) //nolint:gosec // read when it fails
	if err != nil {
		m.t.Fatal(err)
	}
	defer file.Close()
	read, write, err := os.Pipe()
	if err != nil {
		m.t.Fatal(err)
	}
	defer read.Close()
	runtime := exec.Command("cat") //nolint:noctx // ends with what it reads
	runtime.Stdin, runtime.Stdout, runtime.Stderr = read, file, file
	if err := runtime.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = runtime.Wait() })
	return write
}

// await waits until something succeeds.
func (m *member) await(what string, try func(context.Context) error) {
	m.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(m.t.Context(), 10*time.Second)
		err := try(ctx)
		cancel()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			log, _ := os.ReadFile(m.log)
			m.t.Fatalf("waited in vain for %s: %v\n%s", what, err, log[max(0, len(log)-4000):])
		}
	}
}

// stop stops the database, and then the agent, in order.
func (m *member) stop() {
	if m.cmd == nil {
		return
	}
	cmd := m.cmd
	m.cmd = nil
	_ = cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		m.t.Errorf("the agent ended with %v", err)
	}
}

// ask asks the agent as the kubelet and Prometheus do.
func (m *member) ask(path string) error {
	response, err := http.Get(fmt.Sprintf("http://localhost:%d%s", agentapi.ProbePort, path)) //nolint:noctx // a local process
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return err
	case response.StatusCode != http.StatusOK:
		return fmt.Errorf("%s: %s %s", path, response.Status, body)
	case path == "/metrics" && m.kind == "postgres" && m.build == "now" && !bytes.Contains(body, []byte("\npg_up 1\n")):
		return fmt.Errorf("%s does not report pg_up 1", path)
	}
	return nil
}

// scrape reads the metrics once, as Prometheus does.
func (m *member) scrape() {
	if err := m.ask("/metrics"); err != nil {
		m.t.Error(err)
	}
}

// readInsights is what the agent has read of the text log.
func (m *member) readInsights() (insights agentapi.Insights) {
	m.t.Helper()
	out, err := command(agentProgram(m.build), "agent", "insights").Output()
	if err == nil {
		err = json.Unmarshal(out, &insights)
	}
	if err != nil {
		m.t.Fatalf("ask for insights: %v %s", err, out)
	}
	return insights
}

// countTuningSamples is how often the agent has measured the database for tuning.
func (m *member) countTuningSamples() (samples float64) {
	m.t.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: m.plane.clientTLS(m.t), DisableKeepAlives: true}}
	response, err := client.Get(fmt.Sprintf("https://localhost:%d%s", agentapi.StatusPort, agentapi.TuningPath)) //nolint:noctx // a local process
	if err != nil {
		m.t.Fatal(err)
	}
	defer response.Body.Close()
	var tuning agentapi.Tuning
	if err := json.NewDecoder(response.Body).Decode(&tuning); err != nil {
		m.t.Fatalf("%s: %v", response.Status, err)
	}
	for _, slot := range tuning.Slots {
		samples += slot.Sums[agentapi.TuningSamples]
	}
	return samples
}

// setParameters changes settings, and waits until the server has them.
func (m *member) setParameters(parameters map[string]string, name, value string) {
	m.t.Helper()
	m.config.Parameters = parameters
	m.plane.configure(m.t, m.config)
	m.await(name+"="+value, func(context.Context) error {
		got, err := readSetting(serverPort, name)
		if err == nil && got != value {
			err = fmt.Errorf("it is %q", got)
		}
		return err
	})
}

// processTimes are a process's parent, and how long it has used a processor, and those of its
// children that have ended.
type processTimes struct {
	parent         int
	own, itsReaped time.Duration
}

func readTimes(pid string) (p processTimes) {
	data, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return p // it has ended
	}
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	number := func(i int) int {
		n, _ := strconv.Atoi(fields[i])
		return n
	}
	const tick = time.Second / 100
	p.parent = number(1)
	p.own = time.Duration(number(11)+number(12)) * tick
	p.itsReaped = time.Duration(number(13)+number(14)) * tick
	return p
}

// usedCPU is how long a process has used a processor.
func usedCPU(pid int) time.Duration { return readTimes(strconv.Itoa(pid)).own }

// usedByServer is how long a server has used one: its first process, and its children, of
// which a session's ends with the session. It is read again where one ended meanwhile, which
// would count neither as a child nor as one that has ended.
func usedByServer(postmaster string) time.Duration {
	for {
		before := readTimes(postmaster)
		used := before.own + before.itsReaped
		stats, _ := filepath.Glob("/proc/[0-9]*/stat")
		for _, path := range stats {
			if p := readTimes(filepath.Base(filepath.Dir(path))); strconv.Itoa(p.parent) == postmaster {
				used += p.own
			}
		}
		if readTimes(postmaster).itsReaped == before.itsReaped {
			return used
		}
	}
}

// agentSession is how a session of the agent calls its process: that of a superuser.
var agentSession = regexp.MustCompile(`^postgres: \S+: postgres \S+ \[local\]`)

// usedBySessions is how long the agent's sessions have used a processor in its server. One that
// has ended does not count.
func usedBySessions(postmaster string) (used time.Duration) {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range lines {
		if line, err := os.ReadFile(path); err != nil || !agentSession.Match(line) {
			continue
		}
		if p := readTimes(filepath.Base(filepath.Dir(path))); strconv.Itoa(p.parent) == postmaster {
			used += p.own
		}
	}
	return used
}
