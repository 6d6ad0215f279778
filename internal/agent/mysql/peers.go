package mysql

import (
	"context"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/mysql/group"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/mysqlapi"
)

// peers are the other members of the cluster.
type peers struct {
	self   string
	list   func() []string
	status func(ctx context.Context, pod string) (agentapi.Status, error)
	post   func(ctx context.Context, pod, path string, message, into any) error
}

// peer is one other member that answered.
type peer struct {
	group.Report
	Status agentapi.Status
}

// askLimit is how long the other members may take to answer.
const askLimit = 1500 * time.Millisecond

// askAll asks all other members, and those that are recorded beside the current ones. Who
// does not answer, or not in full, is left out.
func (p *peers) askAll(ctx context.Context, record group.Record) []peer {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	pods := slices.Clone(p.list())
	for _, e := range record.Entries {
		if e.Pod != "" && !slices.Contains(pods, e.Pod) {
			pods = append(pods, e.Pod)
		}
	}
	answers := make([]*peer, len(pods))
	var asking sync.WaitGroup
	for i, pod := range pods {
		if pod == p.self {
			continue
		}
		asking.Go(func() { answers[i] = p.ask(ctx, pod) })
	}
	asking.Wait()
	var found []peer
	for _, answer := range answers {
		if answer != nil {
			found = append(found, *answer)
		}
	}
	return found
}

// announceSwitchover tells the members, one of which is about to lead. It does not wait: one
// that does not hear of it is known to lead a little later.
func (p *peers) announceSwitchover(ctx context.Context, successors []peer) {
	for _, s := range successors {
		go func() {
			ctx, cancel := context.WithTimeout(ctx, askLimit)
			defer cancel()
			_ = p.post(ctx, s.Pod, mysqlapi.SwitchoverPath, struct{}{}, &struct{}{})
		}()
	}
}

// ask one member; nil where it does not answer.
func (p *peers) ask(ctx context.Context, pod string) *peer {
	status, err := p.status(ctx, pod)
	if err != nil {
		return nil
	}
	own := agentapi.ReadEngineStatus[mysqlapi.GroupStatus](&status).GroupReplication
	if own == nil {
		return nil
	}
	report, err := group.ReadReport(pod, *own)
	if err != nil {
		return nil
	}
	return &peer{Report: report, Status: status}
}

func listReports(found []peer) []group.Report {
	var reports []group.Report
	for _, p := range found {
		reports = append(reports, p.Report)
	}
	return reports
}

func joinAddress(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }
