//go:build bench

package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Names of processes, as the kernel keeps them.
const (
	operatorProcess = "holdfast"
	apiServer       = "kube-apiserver"
)

// processNames are what the table calls the processes.
var processNames = []struct{ process, name string }{
	{operatorProcess, "operator"}, {apiServer, "API server"}, {"etcd", "etcd"}, {"kube-controller", "controller manager"}, {"bench.test", "simulation"},
}

// process is what one took since it began.
type process struct {
	cpu    time.Duration
	memory float64 // bytes, resident
}

// load is what the processes of the benchmark took until a time.
type load struct {
	at time.Time
	of map[string]process
}

// clockTick is the unit of CPU time in /proc.
const clockTick = time.Second / 100

// measureProcesses reads what this process and its children took.
func (p *plane) measureProcesses() load {
	p.t.Helper()
	l := load{at: time.Now(), of: map[string]process{}}
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		p.t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it ended
		}
		head, tail, _ := strings.Cut(string(text), ") ")
		id, name, _ := strings.Cut(head, " (")
		fields := strings.Fields(tail)
		self := strconv.Itoa(os.Getpid())
		if id != self && fields[1] != self {
			continue
		}
		number := func(n int) int64 {
			value, err := strconv.ParseInt(fields[n], 10, 64)
			if err != nil {
				p.t.Fatalf("%s: %v", file, err)
			}
			return value
		}
		// Counted from the state, which is field 3 of proc_pid_stat(5): 14 and 15
		// are the CPU times, 24 the pages.
		l.of[name] = process{cpu: time.Duration(number(11)+number(12)) * clockTick, memory: float64(number(21)) * float64(os.Getpagesize())}
	}
	return l
}

// reportLoad adds what the processes took between two times, for each cluster.
func (r *report) reportLoad(what string, before, after load, clusters int) {
	var parts []string
	total := time.Duration(0)
	for _, n := range processNames {
		took := after.of[n.process].cpu - before.of[n.process].cpu
		total += took
		parts = append(parts, fmt.Sprintf("%s %d ms", n.name, (took/time.Duration(clusters)).Milliseconds()))
	}
	wall := after.at.Sub(before.at) * time.Duration(runtime.NumCPU())
	r.addRow("CPU of "+what+", for each cluster", strings.Join(parts, ", "), "")
	r.addRow("Share of the cores meanwhile", fmt.Sprintf("%.0f %%", 100*float64(total)/float64(wall)), "")
}

// measureCreation creates clusters up to a number, and waits until all are Ready and
// each has its first backup.
func (p *plane) measureCreation(o *operator, r *report, from, to int) {
	p.t.Helper()
	p.audit.takeRequests()
	before := p.measureProcesses()
	p.createClusters(from, to)
	p.awaitReady((from + to) / 2)
	half := time.Since(before.at)
	p.awaitReady(to)
	ready := time.Since(before.at)
	p.awaitCondition("first backups", func(context.Context) bool { return p.progress.countBackups() >= to })
	after := p.measureProcesses()
	r.addRow("Created, until half of them are Ready", half.Round(time.Second).String(), "")
	r.addRow("Created, until all are Ready", fmt.Sprintf("%s for %d", ready.Round(time.Second), to-from), "")
	r.addRow("Until each has a first backup, too", after.at.Sub(before.at).Round(time.Second).String(), "")
	r.reportLoad("that", before, after, to-from)
	p.awaitSteady(o)
	asked, _ := p.audit.takeRequests()
	r.addRow("Requests for each cluster until then", fmt.Sprintf("%.1f", float64(asked.sumAll())/float64(to-from)), "")
	p.t.Log(asked)
}

// measureStormLoad changes a Service of every cluster at the same time.
func (p *plane) measureStormLoad(o *operator, r *report, many int) {
	p.t.Helper()
	p.audit.takeRequests()
	before := p.measureProcesses()
	took := p.measureStorm(many)
	after := p.measureProcesses()
	r.addLatency("Drift of all clusters at the same time", "", took)
	wall := after.at.Sub(before.at)
	var parts []string
	for _, n := range processNames {
		parts = append(parts, fmt.Sprintf("%s %.0f %%", n.name, 100*float64(after.of[n.process].cpu-before.of[n.process].cpu)/float64(wall)))
	}
	r.addRow("Cores meanwhile (100 % is one)", strings.Join(parts, ", "), "")
	p.awaitSteady(o)
	asked, _ := p.audit.takeRequests()
	r.addRow("Requests for each drift", fmt.Sprintf("%.1f", float64(asked.sumAll())/float64(many)), "")
	p.t.Log(asked)
}

// measureRestart starts an operator where all clusters are as they should be, and
// measures until it has looked at each.
func (p *plane) measureRestart(r *report, binary, address string, many int) *operator {
	p.t.Helper()
	p.audit.takeRequests()
	before := time.Now()
	o := p.startOperator(binary, address)
	p.awaitPasses(o, "a first pass over every cluster", func(passes float64) bool { return passes >= float64(many) })
	took := p.awaitSteady(o).Sub(before)
	asked, _ := p.audit.takeRequests()
	r.addRow("Restart, until no pass has anything left to do", took.Round(100*time.Millisecond).String(), "")
	r.addRow("Requests of that for each cluster", fmt.Sprintf("%.1f", float64(asked.sumAll())/float64(many)), "")
	r.addRow("Memory after that restart", mebibytes(o.readMetrics()["process_resident_memory_bytes"]), "")
	p.t.Log(asked)
	return o
}
