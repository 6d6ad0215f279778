//go:build e2e && bench

package e2e

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// benchData is how much there is to copy, in MiB.
const benchData = 1024

// TestBenchBackup measures backup and restore of a gibibyte beside plain
// pg_basebackup with the same method of compression, which writes to a volume of
// the same disk and verifies nothing. It asserts nothing: these machines are
// noisy.
func TestBenchBackup(t *testing.T) {
	c := newSubject(t, postgres, 1, `storage: {size: 4Gi}`, never)
	c.waitReady()
	pg := &cluster{c}
	// A row takes 4 KiB on its page, half of a page: noise in hexadecimal digits,
	// which compresses to about a half.
	pg.runSQL(leading, "create table filler (n int, noise text storage plain)")
	const part = 16 // MiB at a time: a command may not take long
	for range benchData / part {
		pg.runSQL(leading, fmt.Sprintf(`insert into filler select n, (select string_agg(md5(random()::text || n || i), '') from generate_series(1, 120) i)
			from generate_series(1, %d) n`, part*1024/4))
	}
	pg.runSQL(leading, "checkpoint")

	const runs = 3
	var plainCopy, plainBack, copied, verified, fetched, recovered []time.Duration
	var size float64
	for n := range runs {
		plainCopy = append(plainCopy, pg.runBasebackup("-Ft", "-Z", "client-zstd:3"))
		plainBack = append(plainBack, pg.runBasebackup("-Fp", "-Z", "server-zstd:3"))

		b := c.createBackup(fmt.Sprintf("bench-%d", n), v1alpha1.DeletionDelete)
		took := c.timeSteps(func() string {
			must(t, env.client.Get(t.Context(), client.ObjectKeyFromObject(b), b), "read the backup")
			if b.Status.Run == nil {
				return ""
			}
			return b.Status.Run.Step
		}, v1alpha1.BackupStepDone)
		c.waitBackup(b)
		size = float64(b.Status.Result.DataSize.Value()) / (1 << 20)
		copied = append(copied, took[v1alpha1.BackupStepCopying])
		verified = append(verified, took[v1alpha1.BackupStepVerifying])

		again := createSubject(t, postgres, c.namespace, fmt.Sprintf("again-%d", n), 1, `storage: {size: 4Gi}`, "restore: {backup: "+b.Name+"}", "deletionPolicy: Delete")
		took = c.timeSteps(func() string {
			st := again.getCluster().CommonStatus().Restore
			if st.Done() {
				return v1alpha1.RestoreStepDone
			}
			if st == nil {
				return ""
			}
			step, _, _ := strings.Cut(st.Progress, " ")
			return step
		}, v1alpha1.RestoreStepDone)
		fetched = append(fetched, took[v1alpha1.RestoreStepCopying])
		recovered = append(recovered, took[v1alpha1.RestoreStepRecovering])
		again.waitReady()
		again.deleteCluster()
		must(t, env.client.Delete(t.Context(), b), "delete the backup")
	}

	report := fmt.Sprintf("\n| %.0f MiB, median of %d | took | MiB/s | beside plain |\n|---|---|---|---|\n", size, runs)
	row := func(what string, took, plain []time.Duration) {
		m := medianOf(took)
		beside := ""
		if plain != nil {
			beside = fmt.Sprintf("%.0f %%", 100*medianOf(plain).Seconds()/m.Seconds())
		}
		report += fmt.Sprintf("| %s | %s | %.0f | %s |\n", what, m.Round(100*time.Millisecond), size/m.Seconds(), beside)
	}
	row("pg_basebackup, tar, client-zstd:3", plainCopy, nil)
	row("backup: copied", copied, plainCopy)
	row("backup: verified", verified, nil)
	row("pg_basebackup, plain files, server-zstd:3", plainBack, nil)
	row("restore: copied", fetched, plainBack)
	row("restore: recovered", recovered, nil)
	t.Log(report)
}

func medianOf(all []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(all))[len(all)/2]
}

// runBasebackup copies the primary beside itself, as a replica connects to it, and
// throws the copy away.
func (c *cluster) runBasebackup(how ...string) time.Duration {
	c.t.Helper()
	const to = "/tmp/plain"
	var stderr bytes.Buffer
	do := func(command ...string) {
		c.t.Helper()
		if err := streamCommand(c.t.Context(), c.namespace, c.podName(0), nil, &bytes.Buffer{}, &stderr, command...); err != nil {
			c.t.Fatalf("%v: %v: %s", command, err, stderr.String())
		}
	}
	defer do("rm", "-rf", to)
	tls := agentapi.RunDir + "/tls/"
	from := fmt.Sprintf("host=%s.%s-members.%s.svc user=holdfast_replication sslmode=verify-full sslcert=%stls.crt sslkey=%stls.key sslrootcert=%sroots.crt",
		c.podName(0), c.name, c.namespace, tls, tls, tls)
	began := time.Now()
	do(append([]string{"pg_basebackup", "-d", from, "-D", to, "-X", "fetch", "-c", "fast"}, how...)...)
	return time.Since(began)
}

// timeSteps says how long each step took, until the last one is observed.
func (c *subject) timeSteps(now func() string, last string) map[string]time.Duration {
	c.t.Helper()
	took := map[string]time.Duration{}
	step, since := "", time.Now()
	for end := time.Now().Add(20 * time.Minute); step != last; time.Sleep(100 * time.Millisecond) {
		if next := now(); next != step {
			took[step] += time.Since(since)
			step, since = next, time.Now()
		}
		if time.Now().After(end) {
			c.t.Fatalf("%s does not come to an end", step)
		}
	}
	return took
}
