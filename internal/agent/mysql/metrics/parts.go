package metrics

import (
	"context"
	"database/sql"
	"strconv"
	"strings"

	"github.com/holdfast-db/holdfast/internal/agent/metricfamily"
)

// UpMetric is 1 while the server answers.
var UpMetric = metricfamily.NewGauge("mysql_up", "Whether the server answers.")

// ErrorMetric says of each part of a scrape whether it is missing.
var ErrorMetric = metricfamily.NewGauge("holdfast_mysql_scrape_error", "Whether the server has not answered a part of the scrape, whose metrics are missing; itself missing while mysql_up is 0.", "part")

// Part is what one query of a scrape yields.
type Part struct {
	Name     string
	Families []metricfamily.Family
	query    string
	// send sends the values of rows whose columns are text.
	send func(rows [][]string, send metricfamily.Send)
}

// Parts are all queries of a scrape. The last one is not answered while the member joins
// its group, and keeps no other back.
var Parts = []Part{
	{"variables", append(listFamilies(systemVariables), versionMetric),
		"SELECT VARIABLE_NAME, VARIABLE_VALUE FROM performance_schema.global_variables WHERE VARIABLE_NAME IN (" +
			quoteNames(append(nameVariables(systemVariables), versionLabels...)) + ")", sendVariables},
	// The table of the performance schema lacks the counters of commands.
	{"status", append(listFamilies(statusVariables), listGroups()...),
		"SHOW GLOBAL STATUS WHERE Variable_name IN (" + quoteNames(append(nameVariables(statusVariables), nameGroups()...)) + ")", sendStatus},
	{"innodb", listFamilies(engineCounters),
		"SELECT NAME, COUNT FROM information_schema.INNODB_METRICS WHERE STATUS = 'enabled' AND NAME IN (" + quoteNames(nameVariables(engineCounters)) + ")", sendEngineCounters},
	{"members", []metricfamily.Family{memberMetric}, "SELECT " + strings.Join(memberColumns, ", ") +
		" FROM performance_schema.replication_group_members LIMIT " + strconv.Itoa(largestGroup), sendMembers},
	{"statistics", listFamilies(statisticsColumns), "SELECT " + strings.Join(nameVariables(statisticsColumns), ", ") +
		" FROM performance_schema.replication_group_member_stats WHERE MEMBER_ID = @@server_uuid LIMIT 1", sendStatistics},
}

// Collect asks the server for the part, and sends it.
func (p Part) Collect(ctx context.Context, db *sql.DB, send metricfamily.Send) error {
	rows, err := db.QueryContext(ctx, p.query)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	var all [][]string
	for rows.Next() {
		values, into := make([]sql.NullString, len(columns)), make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			return err
		}
		row := make([]string, len(columns))
		for i, value := range values {
			row[i] = value.String
		}
		all = append(all, row)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	p.send(all, send)
	return nil
}

func sendMembers(rows [][]string, send metricfamily.Send) {
	for _, row := range rows {
		send(memberMetric, 1, row...)
	}
}

func sendStatistics(rows [][]string, send metricfamily.Send) {
	for _, row := range rows {
		for i, column := range statisticsColumns {
			sendNumber(send, column.Family, row[i])
		}
	}
}

func sendVariables(rows [][]string, send metricfamily.Send) {
	values := readVariables(rows)
	for _, v := range systemVariables {
		sendNumber(send, v.Family, values[v.name])
	}
	labels := make([]string, len(versionLabels))
	for i, name := range versionLabels {
		labels[i] = values[name]
	}
	send(versionMetric, 1, labels...)
}

func sendEngineCounters(rows [][]string, send metricfamily.Send) {
	values := readVariables(rows)
	for _, v := range engineCounters {
		sendNumber(send, v.Family, values[v.name])
	}
}

func sendStatus(rows [][]string, send metricfamily.Send) {
	values := readVariables(rows)
	for _, v := range statusVariables {
		sendNumber(send, v.Family, values[v.name])
	}
	for _, g := range statusGroups {
		for _, label := range g.labels {
			sendNumber(send, g.Family, values[g.prefix+label], label)
		}
	}
}

// readVariables are values by names in lower case.
func readVariables(rows [][]string) map[string]string {
	values := map[string]string{}
	for _, row := range rows {
		values[strings.ToLower(row[0])] = row[1]
	}
	return values
}

// sendNumber sends a value that is a number, or on or off. The server may not have the
// variable, or another kind of value: then there is no metric.
func sendNumber(send metricfamily.Send, f metricfamily.Family, text string, labels ...string) {
	switch strings.ToUpper(text) {
	case "ON", "YES":
		send(f, 1, labels...)
	case "OFF", "NO":
		send(f, 0, labels...)
	default:
		if value, err := strconv.ParseFloat(text, 64); err == nil {
			send(f, value, labels...)
		}
	}
}

func listFamilies(variables []variable) []metricfamily.Family {
	var families []metricfamily.Family
	for _, v := range variables {
		families = append(families, v.Family)
	}
	return families
}

func nameVariables(variables []variable) []string {
	var names []string
	for _, v := range variables {
		names = append(names, v.name)
	}
	return names
}

func listGroups() []metricfamily.Family {
	var families []metricfamily.Family
	for _, g := range statusGroups {
		families = append(families, g.Family)
	}
	return families
}

func nameGroups() []string {
	var names []string
	for _, g := range statusGroups {
		for _, label := range g.labels {
			names = append(names, g.prefix+label)
		}
	}
	return names
}

// quoteNames are names of variables as a list of literals. None of them has a quote.
func quoteNames(names []string) string {
	return "'" + strings.Join(names, "', '") + "'"
}
