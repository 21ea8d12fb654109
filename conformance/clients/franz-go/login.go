// How to log in, as login.py describes it.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func login() []kgo.Opt {
	var options []kgo.Opt
	if parts := strings.SplitN(os.Getenv("CONFORMANCE_LOGIN"), ":", 3); len(parts) == 3 {
		auth := scram.Auth{User: parts[1], Pass: parts[2]}
		switch parts[0] {
		case "PLAIN":
			options = append(options, kgo.SASL(plain.Auth{User: parts[1], Pass: parts[2]}.AsMechanism()))
		case "OAUTHBEARER":
			options = append(options, kgo.SASL(oauth.Oauth(func(context.Context) (oauth.Auth, error) {
				token, err := os.ReadFile(parts[2])
				return oauth.Auth{Token: string(token)}, err
			})))
		case "SCRAM-SHA-256":
			options = append(options, kgo.SASL(auth.AsSha256Mechanism()))
		default:
			options = append(options, kgo.SASL(auth.AsSha512Mechanism()))
		}
	}
	if path := os.Getenv("CONFORMANCE_CA"); path != "" {
		pem, err := os.ReadFile(path)
		if err != nil {
			panic(err)
		}
		trusted := x509.NewCertPool()
		trusted.AppendCertsFromPEM(pem)
		options = append(options, kgo.DialTLSConfig(&tls.Config{RootCAs: trusted}))
	}
	return options
}
