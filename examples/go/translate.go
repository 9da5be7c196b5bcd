// Command translate translates texts, and then the first of them as a stream: translate TEXT...
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	translanev1 "example.org/translate/translane/v1"
)

//go:generate protoc -I ../../protos --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative translane/v1/translation.proto

func main() {
	texts := os.Args[1:]
	if len(texts) == 0 {
		texts = []string{"今天天气很好"}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := run(ctx, texts); err != nil {
		fmt.Fprintln(os.Stderr, err) // of a call: the code's name, and what is wrong
		os.Exit(1)
	}
}

func run(ctx context.Context, texts []string) error {
	options, err := security(os.Getenv("TRANSLANE_CLIENT_CA"), os.Getenv("TRANSLANE_CLIENT_TOKEN"))
	if err != nil {
		return err
	}
	address := os.Getenv("TRANSLANE_CLIENT_SERVER")
	if address == "" {
		address = "localhost:50051"
	}
	// Dial, and not NewClient, because Debian's gRPC is older than NewClient.
	connection, err := grpc.Dial(address, options...)
	if err != nil {
		return err
	}
	defer connection.Close()
	client := translanev1.NewTranslationServiceClient(connection)

	answer, err := client.Translate(ctx, &translanev1.TranslateRequest{Texts: texts})
	if err != nil {
		return err
	}
	for _, translation := range answer.Translations {
		fmt.Println(translation.Hypotheses[0].Text)
	}

	stream, err := client.TranslateStream(ctx, &translanev1.TranslateStreamRequest{Text: texts[0]})
	if err != nil {
		return err
	}
	for {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			fmt.Println()
			return nil
		}
		if err != nil {
			return err
		}
		fmt.Print(part.TextDelta)
	}
}

// security returns the options of a connection: TLS where a file of certificates is given, and a key over TLS alone.
func security(trusted, key string) ([]grpc.DialOption, error) {
	if trusted == "" {
		if key != "" {
			return nil, errors.New("a key needs TLS: set TRANSLANE_CLIENT_CA")
		}
		return []grpc.DialOption{grpc.WithInsecure()}, nil
	}
	certificates, err := credentials.NewClientTLSFromFile(trusted, "")
	if err != nil {
		return nil, err
	}
	options := []grpc.DialOption{grpc.WithTransportCredentials(certificates)}
	if key != "" {
		options = append(options, grpc.WithPerRPCCredentials(bearer(key)))
	}
	return options, nil
}

// bearer is a key of a server's keys file.
type bearer string

func (key bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(key)}, nil
}

func (bearer) RequireTransportSecurity() bool { return true }
