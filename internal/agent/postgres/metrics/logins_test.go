package metrics

import "testing"

// Lines about failed logins are counted, whatever the method, and no other line is: not
// one whose client has such a text for a name, nor a statement that quotes one.
func TestLoginFailures(t *testing.T) {
	const prefix = "2026-03-01 12:00:00.123 UTC [421] "
	for line, want := range map[string]int64{
		prefix + `app@orders FATAL:  password authentication failed for user "app"`:                                                     1,
		prefix + `app@orders FATAL:  certificate authentication failed for user "app"`:                                                  1,
		prefix + `app@orders FATAL:  OAuth bearer authentication failed for user "app"`:                                                 1,
		prefix + `app@orders FATAL:  no pg_hba.conf entry for host "10.0.0.7", user "app", database "orders", no encryption`:            1,
		prefix + `app@orders FATAL:  pg_hba.conf rejects connection for host "10.0.0.7", user "app", database "orders", SSL encryption`: 1,
		prefix + `app@orders FATAL:  database "orders" does not exist`:                                                                  0,
		prefix + `FATAL:  the database system is starting up`:                                                                           0,
		prefix + `app@orders ERROR:  password authentication failed for user "app"`:                                                     0,
		prefix + `app@orders LOG:  statement: select 'password authentication failed for user "app"'`:                                   0,
		prefix + `app@orders FATAL:  terminating connection: the text says that authentication failed for user "app"`:                   0,
		prefix + `app@orders DETAIL:  Connection matched file "pg_hba.conf" line 3: "hostssl all all all scram-sha-256"`:                0,
		"": 0,
	} {
		var l LoginFailures
		l.HearLine(line)
		if l.Count() != want {
			t.Errorf("%d of %q", l.Count(), line)
		}
	}
}
