package web

import (
	"crypto/rand"
	"crypto/subtle"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
)

// contentSecurityPolicy lets pages load their own files and ask their own server.
const contentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Guard lets one browser in: the first that brings the token gets a cookie for it, and
// the token counts no more. Names of hosts that resolve to this machine are refused, so
// that no page elsewhere reaches the server by DNS rebinding.
type Guard struct {
	next   http.Handler
	hosts  []string
	cookie string

	mu      sync.Mutex
	token   string // empty once it was used
	session string
}

// NewGuard guards a handler that is served on a port of the loopback address, written as
// in a URL.
func NewGuard(port string, next http.Handler) *Guard {
	return &Guard{
		next: next, hosts: []string{"127.0.0.1:" + port, "localhost:" + port},
		// Cookies do not tell ports apart.
		cookie: "holdfast-ui-" + port,
		token:  rand.Text(), session: rand.Text(),
	}
}

// Address to open once, with the token.
func (g *Guard) Address() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return "http://" + g.hosts[0] + "/?" + url.Values{"token": {g.token}}.Encode()
}

// ServeHTTP implements http.Handler.
func (g *Guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	setHeaders(w.Header())
	site := r.Header.Get("Sec-Fetch-Site")
	switch {
	case !slices.Contains(g.hosts, r.Host):
		http.Error(w, "open http://"+g.hosts[0]+": this server answers to no other name", http.StatusMisdirectedRequest)
	case r.Method != http.MethodGet:
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "this server only shows: use GET", http.StatusMethodNotAllowed)
	case site == "cross-site" || site == "same-site":
		http.Error(w, "a page of another site asked", http.StatusForbidden)
	case g.knows(r):
		if r.URL.Query().Has("token") {
			http.Redirect(w, r, "/", http.StatusSeeOther) // a token stays in no history
			return
		}
		g.next.ServeHTTP(w, r)
	case r.URL.Path == "/" && g.redeem(r.URL.Query().Get("token")):
		http.SetCookie(w, &http.Cookie{Name: g.cookie, Value: g.session, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
		http.Redirect(w, r, "/", http.StatusSeeOther)
	default:
		http.Error(w, "the address that kubectl holdfast ui printed opens once, in one browser: start it again for another", http.StatusForbidden)
	}
}

// knows says whether the browser has the cookie.
func (g *Guard) knows(r *http.Request) bool {
	return slices.ContainsFunc(r.CookiesNamed(g.cookie), func(c *http.Cookie) bool { return same(c.Value, g.session) })
}

// redeem takes the token, once.
func (g *Guard) redeem(token string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.token == "" || !same(token, g.token) {
		return false
	}
	g.token = ""
	return true
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

func setHeaders(h http.Header) {
	for _, pair := range []string{
		"Content-Security-Policy: " + contentSecurityPolicy,
		"X-Content-Type-Options: nosniff", "Referrer-Policy: no-referrer", "Cache-Control: no-store",
		"Cross-Origin-Opener-Policy: same-origin", "Cross-Origin-Resource-Policy: same-origin", "X-Frame-Options: DENY",
	} {
		name, value, _ := strings.Cut(pair, ": ")
		h.Set(name, value)
	}
}
