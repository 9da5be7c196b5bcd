#!/bin/sh
# Translates with grpcurl over gRPC: grpcurl.sh '{"texts": ["今天天气很好"]}'
# grpcurl learns the messages by reflection, and prints the JSON of a TranslateResponse.
set -eu
request=${1:-'{"texts": ["今天天气很好"]}'}
address=${TRANSLANE_CLIENT_SERVER:-localhost:50051}
set -- -max-time 30 -d "$request"
if [ -n "${TRANSLANE_CLIENT_CA:-}" ]; then
    set -- "$@" -cacert "$TRANSLANE_CLIENT_CA"
else
    set -- "$@" -plaintext
fi
if [ -n "${TRANSLANE_CLIENT_TOKEN:-}" ]; then
    # The variable's name, and not its value: all users of a machine see the arguments of its programs.
    set -- "$@" -expand-headers -H "authorization: Bearer \${TRANSLANE_CLIENT_TOKEN}"
fi
grpcurl "$@" "$address" translane.v1.TranslationService/Translate
