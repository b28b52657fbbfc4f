package frp_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muxproxy/muxproxy/tunnel"
	"github.com/muxproxy/muxproxy/tunnel/frp"
	"github.com/muxproxy/muxproxy/tunnel/frp/frpstest"
)

func TestOptionsAreCheckedByName(t *testing.T) {
	good := frp.Options{ServerAddr: "frp.example.net:7000", PublicURL: "https://{subdomain}.example.net"}
	tcp := frp.Options{ServerAddr: "frp.example.net:7000", PublicURL: "http://example.net:{port}", ProxyType: frp.TypeTCP}
	with := func(o frp.Options, change func(*frp.Options)) frp.Options {
		change(&o)
		return o
	}
	url := func(o frp.Options, template string) frp.Options {
		return with(o, func(o *frp.Options) { o.PublicURL = template })
	}
	for _, test := range []struct {
		name    string
		options frp.Options
		wrong   []string
	}{
		{"subdomain", good, nil},
		{"subdomain with a slash and a port", url(good, "http://{subdomain}.example.net:8080/"), nil},
		{"port", tcp, nil},
		{"port of an IPv6 address", url(tcp, "http://[::1]:{port}"), nil},
		{"nothing", frp.Options{}, []string{"ServerAddr", "PublicURL"}},
		{"no port", with(good, func(o *frp.Options) { o.ServerAddr = "frp.example.net" }), []string{"ServerAddr"}},
		{"no host", with(good, func(o *frp.Options) { o.ServerAddr = ":7000" }), []string{"ServerAddr"}},
		{"type", with(good, func(o *frp.Options) { o.ProxyType = "udp" }), []string{"ProxyType"}},
		{"port for http", url(good, tcp.PublicURL), []string{"PublicURL"}},
		{"subdomain for tcp", url(tcp, good.PublicURL), []string{"PublicURL"}},
		{"both", url(good, "https://{subdomain}.example.net:{port}"), []string{"PublicURL"}},
		{"twice", url(good, "https://{subdomain}.{subdomain}.net"), []string{"PublicURL"}},
		{"no variable", url(good, "https://example.net"), []string{"PublicURL"}},
		{"no scheme", url(good, "{subdomain}.example.net"), []string{"PublicURL"}},
		{"other scheme", url(good, "ftp://{subdomain}.example.net"), []string{"PublicURL"}},
		{"subdomain alone", url(good, "https://{subdomain}"), []string{"PublicURL"}},
		{"subdomain in the middle", url(good, "https://a.{subdomain}.net"), []string{"PublicURL"}},
		{"subdomain as part", url(good, "https://{subdomain}-a.example.net"), []string{"PublicURL"}},
		{"subdomain in the path", url(good, "https://example.net/{subdomain}"), []string{"PublicURL"}},
		{"path", url(good, "https://{subdomain}.example.net/v1"), []string{"PublicURL"}},
		{"query", url(good, "https://{subdomain}.example.net?a=b"), []string{"PublicURL"}},
		{"user", url(good, "https://me@{subdomain}.example.net"), []string{"PublicURL"}},
		{"port without a host", url(tcp, "http://:{port}"), []string{"PublicURL"}},
		{"port in the path", url(tcp, "http://example.net/{port}"), []string{"PublicURL"}},
		{"part of a port", url(tcp, "http://example.net:2{port}"), []string{"PublicURL"}},
		{"file", with(good, func(o *frp.Options) { o.CAFile = "/does/not/exist" }), []string{"CAFile"}},
		{"not PEM", with(good, func(o *frp.Options) { o.CAFile = "driver_test.go" }), []string{"CAFile"}},
		{"nothing to verify", with(good, func(o *frp.Options) { o.CAFile, o.PlainText = "driver_test.go", true }), []string{"CAFile"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			d, err := frp.New(test.options)
			if len(test.wrong) == 0 && (err != nil || d == nil) {
				t.Fatalf("refused: %v", err)
			}
			for _, field := range test.wrong {
				if err == nil || !strings.Contains(err.Error(), field+": ") {
					t.Errorf("got %v; want %s named", err, field)
				}
			}
			if err != nil && strings.Count(err.Error(), "\n")+1 != len(test.wrong) {
				t.Errorf("got %v; want %d problems", err, len(test.wrong))
			}
		})
	}
}

func TestOnlyHTTPProxiesLimitTheTimeToTheHeaders(t *testing.T) {
	for proxyType, want := range map[string]time.Duration{frp.TypeHTTP: time.Minute, frp.TypeTCP: 0} {
		url := "http://{subdomain}.example.net"
		if proxyType == frp.TypeTCP {
			url = "http://example.net:{port}"
		}
		d, err := frp.New(frp.Options{ServerAddr: "127.0.0.1:7000", ProxyType: proxyType, PublicURL: url})
		if err != nil {
			t.Fatal(err)
		}
		if got := d.HeaderLimit(); got != want {
			t.Errorf("%s: %s; want %s", proxyType, got, want)
		}
	}
}

func TestSubdomainsCannotBeGuessed(t *testing.T) {
	s := frpstest.New(t, frpstest.Options{})
	d := driver(t, s, frp.Options{})
	first, second := open(t, d, tunnel.Local{Server: "srv-1"}), open(t, d, tunnel.Local{Server: "srv-1"})
	if first.URL() == second.URL() {
		t.Errorf("twice %s", first.URL())
	}
	label, _, _ := strings.Cut(strings.TrimPrefix(first.URL(), "http://"), ".")
	if len(label) < 26 || len(label) > 63 || label != strings.ToLower(label) {
		t.Errorf("%q is no long lower-case label", label)
	}
}

func TestServerIsVerifiedByTheGivenCertificates(t *testing.T) {
	right, key := certificate(t, "127.0.0.1")
	wrong, _ := certificate(t, "127.0.0.1")
	s := frpstest.New(t, frpstest.Options{CertFile: right, KeyFile: key})

	opened := open(t, driver(t, s, frp.Options{CAFile: right}), tunnel.Local{Serve: hello(t)})
	answers(t, visitor(t, s), opened.URL())

	_, err := driver(t, s, frp.Options{CAFile: wrong}).Open(t.Context(), tunnel.Local{})
	if _, ok := errors.AsType[*tunnel.ConfigError](err); !ok {
		t.Errorf("got %v for a certificate of somebody else; want a ConfigError", err)
	}

	elsewhere, key := certificate(t, "192.0.2.1")
	s = frpstest.New(t, frpstest.Options{CertFile: elsewhere, KeyFile: key})
	_, err = driver(t, s, frp.Options{CAFile: elsewhere}).Open(t.Context(), tunnel.Local{})
	if _, ok := errors.AsType[*tunnel.ConfigError](err); !ok {
		t.Errorf("got %v for a certificate of another host; want a ConfigError", err)
	}
}

// certificate makes a certificate for the address that vouches for itself.
func certificate(t *testing.T, address string) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotAfter:     time.Now().Add(time.Hour),
		IPAddresses:  []net.IP{net.ParseIP(address)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	for file, block := range map[string]*pem.Block{
		certFile: {Type: "CERTIFICATE", Bytes: der},
		keyFile:  {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}
