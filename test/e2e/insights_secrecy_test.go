//go:build e2e || soak

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// insightsLiterals are insightsLiteral and a part of it, as it may be left of a text that was
// cut or quoted.
var insightsLiterals = []string{insightsLiteral, "4111222233334444"}

// failingStatements fail, each with the literal where a client chooses a text: in a value, a
// name, a message, a setting.
var failingStatements = []string{
	"selec '%[1]s'",
	"select %[1]s",
	"select * from \"no_%[1]s\"",
	"select %[1]s('x')",
	"select '%[1]s'::int",
	"insert into \"%[1]s\" values ('%[1]s')", // it is there
	"insert into \"%[1]s\" values (null)",
	"execute \"%[1]s\"",
	"set work_mem = '%[1]s'",
	"set application_name = '%[1]s'; select 1/0",
	"do $$ begin raise exception '%[1]s' using detail = '%[1]s', hint = '%[1]s', table = '%[1]s', constraint = '%[1]s'; end $$",
	"do $$ begin raise warning E'%[1]s\\nFATAL:  %[1]s'; perform 1/0; end $$",
	"alter role app connection limit '%[1]s'",
}

// sendLiterals sends what fails: statements, and sessions of a role and to a database of the
// literal's name.
func (c *cluster) sendLiterals() {
	c.t.Helper()
	c.runSQL(leading, fmt.Sprintf("create table \"%[1]s\" (\"%[1]s\" text constraint \"%[1]s_key\" primary key); insert into \"%[1]s\" values ('%[1]s')", insightsLiteral))
	for _, statement := range failingStatements {
		c.failSQL(fmt.Sprintf(statement, insightsLiteral))
	}
	ctx, pod := inContainer(c.t.Context(), "postgres"), c.podName(leading)
	for what, arguments := range map[string][]string{
		"a session of a role that does not exist":     {"host=localhost dbname=app sslmode=require user=" + insightsLiteral + " password=" + insightsLiteral},
		"a session of a database that does not exist": {"-h", agentapi.RunDir, "-U", "postgres", "-d", insightsLiteral},
	} {
		if _, err := runCommand(ctx, c.namespace, pod, "", append([]string{"psql", "-c", "select 1"}, arguments...)...); err == nil {
			c.t.Errorf("%s begins", what)
		}
	}
}

// requireLiteralsStay wants literals in the server's text log alone: not in what the operator
// and the agents log, in events, or in any part of the cluster's object.
func (c *cluster) requireLiteralsStay() {
	c.t.Helper()
	ctx := c.t.Context()
	texts, mentions := map[string]string{}, false
	for name, text := range readLogs(ctx, c.t, operatorNamespace) {
		texts["the log of the operator "+name] = text
		mentions = mentions || strings.Contains(text, c.namespace)
	}
	if !mentions {
		c.t.Errorf("the operator's log does not mention %s", c.namespace)
	}
	servers, agents := "", ""
	for name, text := range readLogs(ctx, c.t, c.namespace) {
		var agent string
		agent, text = splitAgentLines(text)
		texts["the agent's log in "+name] = agent
		agents, servers = agents+agent, servers+text
	}
	if !strings.Contains(servers, insightsLiteral) {
		c.t.Error("no server has logged the literal: nothing was sent")
	}
	if !strings.Contains(agents, `"msg"`) {
		c.t.Error("no line of an agent is found")
	}
	for _, namespace := range []string{c.namespace, operatorNamespace} {
		texts["the events of "+namespace] = listEventsAsJSON(ctx, c, namespace)
	}
	obj := c.getCluster()
	object, err := json.Marshal(obj)
	must(c.t, err, "encode the cluster")
	texts["the cluster's object"] = string(object)
	if len(obj.Status.Conditions) == 0 || obj.Status.Insights == nil {
		c.t.Errorf("there is nothing to search in: %s", object)
	}
	for where, text := range texts {
		for _, literal := range insightsLiterals {
			if at := strings.Index(text, literal); at >= 0 {
				c.t.Errorf("%s has a literal: %s", where, text[max(0, at-200):min(len(text), at+200)])
			}
		}
	}
}

// listEventsAsJSON are all events of a namespace. That of a cluster has some.
func listEventsAsJSON(ctx context.Context, c *cluster, namespace string) string {
	c.t.Helper()
	var events eventsv1.EventList
	must(c.t, env.client.List(ctx, &events, client.InNamespace(namespace)), "list the events of "+namespace)
	if namespace == c.namespace && len(events.Items) == 0 {
		c.t.Error("the cluster has no event")
	}
	text, err := json.Marshal(events)
	must(c.t, err, "encode events")
	return string(text)
}

// splitAgentLines parts a member's log: an agent writes JSON, and its server does not.
func splitAgentLines(log string) (agent, server string) {
	var ofAgent, ofServer strings.Builder
	for line := range strings.Lines(log) {
		if strings.HasPrefix(line, "{") {
			ofAgent.WriteString(line)
		} else {
			ofServer.WriteString(line)
		}
	}
	return ofAgent.String(), ofServer.String()
}
