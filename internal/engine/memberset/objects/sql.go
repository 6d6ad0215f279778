package objects

import (
	"net/url"
	"strconv"

	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
)

// SQLForm is how drivers of an SQL database write an address.
type SQLForm struct {
	// Scheme of its URIs, and the type of its Secret.
	Scheme string
	// TLS and JDBCTLS are the query of a URI that refuses connections without TLS, as
	// name and value.
	TLS, JDBCTLS [2]string
}

// SQLAddress is where applications find the first database, and as whom.
type SQLAddress struct {
	Host                      string
	Port                      int
	Database, Owner, Password string
}

// SQLSecret is the connection Secret of an SQL database: parts, and the whole in the
// forms that drivers read.
func SQLSecret(s Set, d Desired, form SQLForm, a SQLAddress) *corev1ac.SecretApplyConfiguration {
	uri := url.URL{
		Scheme: form.Scheme, User: url.UserPassword(a.Owner, a.Password),
		Host: HostPort(a.Host, a.Port), Path: "/" + a.Database, RawQuery: url.Values{form.TLS[0]: {form.TLS[1]}}.Encode(),
	}
	jdbc := url.URL{
		Scheme: "jdbc:" + form.Scheme, Host: HostPort(a.Host, a.Port), Path: "/" + a.Database,
		RawQuery: url.Values{"user": {a.Owner}, "password": {a.Password}, form.JDBCTLS[0]: {form.JDBCTLS[1]}}.Encode(),
	}
	return ConnectionSecret(s, d, form.Scheme, map[string]string{
		"host": a.Host, "port": strconv.Itoa(a.Port), "username": a.Owner, "password": a.Password,
		"dbname": a.Database, "database": a.Database, "uri": uri.String(), "jdbc-uri": jdbc.String(),
	})
}
