#!/usr/bin/env bash
# Ask over Kafka with kcat and jq, and print the answer as it comes: ./first_message.sh ["PROMPT"]
# KAFKA=host:port where it is not 127.0.0.1:9092.
#
# The partitioner must be Kafka's own murmur2; librdkafka's default would put the user on another partition.
# kcat reads committed records alone, as readers of `tokens` must. This reader leaves out the rule's epochs: while a
# worker is being replaced it can show a late word twice; see first_message.py for all of it.
set -euo pipefail

KAFKA=${KAFKA:-127.0.0.1:9092}
USER_ID=ann
REQUEST_ID=$(date +%s)-$$
PROMPT=${*:-Where is my order 17?}

jq -nc --arg id "$REQUEST_ID" --arg user "$USER_ID" --arg prompt "$PROMPT" \
    '{request_id: $id, user_id: $user, prompt: $prompt}' |
    kcat -P -b "$KAFKA" -t requests -k "$USER_ID" -X topic.partitioner=murmur2_random

# From a minute ago on, since the answer may have begun before this reader has.
since=$((($(date +%s) - 60) * 1000))
coproc tokens { exec kcat -C -q -u -b "$KAFKA" -t tokens -o "s@$since" -X isolation.level=read_committed; }
trap 'kill "$tokens_PID" 2>/dev/null || true' EXIT

jq -jn --unbuffered --arg id "$REQUEST_ID" '
    label $over | inputs | select(.request_id == $id)
    | if .type == "token" then .text
      elif .type == "done" then (.text // ""), "\n[\(.finish_reason)]\n", break $over
      elif .type == "error" then "\n[\(.error.message)]\n", break $over
      else empty end' <&"${tokens[0]}"
