package agentclient

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// The agents of the benchmark live in a process of their own, so that only the
// operator's side is measured: the test binary itself, selected by this.
const envServe = "HOLDFAST_BENCH_SERVE"

func TestMain(m *testing.M) {
	if os.Getenv(envServe) != "" {
		if err := serveAgents(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// serveAgents answers until its standard input ends.
func serveAgents() error {
	config := new(tls.Config)
	var material struct{ Certificates [][]byte }
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return err
	}
	if err := json.Unmarshal(line, &material); err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(material.Certificates[0], material.Certificates[1])
	if err != nil {
		return err
	}
	config.Certificates = []tls.Certificate{pair}
	config.ClientAuth = tls.RequireAnyClientCert
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	agent := newFakeAgent("uid-0")
	agent.status.Details = map[string]string{"settings": strings.Repeat("x", 500)}
	go func() { _ = http.Serve(tls.NewListener(listener, config), agent) }() //nolint:gosec // a benchmark's server
	fmt.Println(listener.Addr())
	_, _ = in.ReadByte()
	return nil
}

// BenchmarkSteadyMember reports what a watched member costs the operator in
// memory: heap and stacks, with its connection.
func BenchmarkSteadyMember(b *testing.B) {
	const clusters, perCluster = 200, 3
	auth := newAuthority(b)
	address := startAgents(b, auth)

	for b.Loop() {
		ctx, cancel := context.WithCancel(b.Context())
		p := New(Options{})
		ended := make(chan error, 1)
		go func() { ended <- p.Start(ctx) }()
		before := inUse()
		for i := range clusters {
			t := Target{TLS: auth.newClient(b)}
			for j := range perCluster {
				t.Members = append(t.Members, Member{Pod: fmt.Sprintf("orders-%d", j), UID: "uid-0", Address: address, ServerName: serverName})
			}
			p.Watch(types.NamespacedName{Namespace: "shop", Name: fmt.Sprint("orders-", i)}, "owner", t)
		}
		for i := range clusters {
			for !allAnswer(p.Get(types.NamespacedName{Namespace: "shop", Name: fmt.Sprint("orders-", i)})) {
				time.Sleep(50 * time.Millisecond)
			}
		}
		time.Sleep(2 * minPause) // until the second, held request is on its way
		b.ReportMetric(float64(inUse()-before)/(clusters*perCluster), "B/member")
		cancel()
		if err := <-ended; err != nil {
			b.Fatal(err)
		}
	}
}

func startAgents(b *testing.B, auth authority) string {
	b.Helper()
	leaf := auth.server.Certificates[0]
	keyDER, err := x509.MarshalPKCS8PrivateKey(leaf.PrivateKey)
	if err != nil {
		b.Fatal(err)
	}
	key := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
	child := exec.CommandContext(b.Context(), os.Args[0])
	child.Env = append(os.Environ(), envServe+"=1")
	child.Stderr = os.Stderr
	in, err := child.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := child.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		in.Close()
		_ = child.Wait()
	})
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Certificate[0]})
	if err := json.NewEncoder(in).Encode(map[string][][]byte{"Certificates": {certPEM, key}}); err != nil {
		b.Fatal(err)
	}
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return strings.TrimSpace(address)
}

func allAnswer(observed map[string]Observation) bool {
	for _, o := range observed {
		if o.Status == nil || o.Status.State != agentapi.StateRunning {
			return false
		}
	}
	return true
}

// inUse is heap and stacks in bytes, after what is garbage has gone.
func inUse() uint64 {
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}
