// Package dashboards holds the Grafana dashboards of Holdfast as data, and writes them as
// the JSON that Grafana imports. It knows the model of dashboards that Grafana 10 and later
// read (schema version 39), and of it only what Holdfast's panels need.
package dashboards
